use std::collections::BTreeSet;
use std::sync::Arc;

use homenode_units::{Bytes, NodeSet};
use proptest::prelude::*;

use super::*;
use crate::{NodeMemory, PageKind, Policy, PolicyMode, page_size};

/// Memory anywhere: these tests are about what the loops do, and run in containers that refuse
/// policies, too.
fn memory(bytes: usize) -> NodeMemory {
    let policy = Policy::new(PolicyMode::Default, NodeSet::new());
    NodeMemory::with_policy(Bytes(bytes as u64), &policy, PageKind::Base).unwrap()
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// What an operation does to the whole of some memory, in plain Rust; the result of reads.
fn twin(operation: Operation, words: &mut [u64], array: usize) -> u64 {
    let factor = f64::from_bits(stream::VALUE);
    for i in 0..array {
        match operation {
            Operation::Read | Operation::PrefetchRead => {}
            Operation::Write | Operation::WriteNt => words[i] = stream::VALUE,
            Operation::Copy | Operation::CopyNt => words[i] = words[array + i],
            Operation::Update => words[i] ^= stream::VALUE,
            Operation::Triad => {
                let product = f64::from_bits(words[array + i]) * factor;
                words[i] = (f64::from_bits(words[2 * array + i]) + product).to_bits();
            }
        }
    }
    words[..array].iter().fold(0, |all, word| all ^ word)
}

#[test]
fn every_stream_does_what_its_twin_does() {
    let mut kinds = BTreeSet::new();
    for kernel in StreamKernel::available() {
        let mut memory = memory(3 * 4096 * 5);
        fill(&mut memory, 7);
        let mut expected = words(memory.as_slice());
        let array = kernel.array_bytes(&memory);
        let result = kernel.run(&mut memory, 0, array, 1, 512);
        let exclusive_or = twin(kernel.operation, &mut expected, array / 8);
        let found = words(memory.as_slice());
        let is_bytewise = matches!(kernel.isa, Isa::Rep | Isa::Libc);
        if is_bytewise && kernel.operation == Operation::Write {
            assert!(memory.as_slice()[..array].iter().all(|&byte| byte == 0x5A));
            assert_eq!(found[array / 8..], expected[array / 8..]);
        } else {
            assert_eq!(found, expected, "{}", kernel.name());
        }
        if matches!(kernel.operation, Operation::Read | Operation::PrefetchRead) {
            assert_eq!(result, exclusive_or, "{}", kernel.name());
        }
        kinds.insert(kernel.operation);
    }
    assert_eq!(kinds.len(), OPERATIONS.len(), "each operation has a loop");
}

/// Twice in place gives back what was there; nothing outside of the piece is touched.
#[test]
fn a_piece_and_its_passes_are_kept_to() {
    for kernel in StreamKernel::available() {
        let mut memory = memory(3 * 8192);
        fill(&mut memory, 11);
        let before = words(memory.as_slice());
        kernel.run(&mut memory, 512, 1024, 2, 64);
        let after = words(memory.as_slice());
        let changed: Vec<usize> = (0..before.len())
            .filter(|&i| before[i] != after[i])
            .collect();
        match kernel.operation {
            Operation::Read | Operation::PrefetchRead | Operation::Update => {
                assert_eq!(changed, [], "{}", kernel.name());
            }
            _ => assert_eq!(changed, (64..192).collect::<Vec<_>>(), "{}", kernel.name()),
        }
    }
}

#[test]
#[should_panic(expected = "no piece")]
fn a_piece_beyond_the_memory_is_refused() {
    let kernel = StreamKernel::find(Operation::Copy, Isa::Scalar).unwrap();
    kernel.run(&mut memory(8192), 4096, 512, 1, 0);
}

#[test]
fn names_are_unique_and_found() {
    let mut names = BTreeSet::new();
    for kernel in StreamKernel::available() {
        assert!(names.insert(kernel.name()), "{} twice", kernel.name());
        assert!(StreamKernel::find(kernel.operation, kernel.isa).is_some());
    }
    assert!(names.contains("read scalar"));
}

/// The counting rules, written out: STREAM counts what the program moves; a store to a line that
/// is not cached reads it first.
#[test]
fn bytes_are_counted_as_documented() {
    let rules: Vec<_> = OPERATIONS
        .map(|operation| (operation.name(), operation.useful(), operation.bus()))
        .to_vec();
    assert_eq!(
        rules,
        [
            ("read", (1, 0), (1, 1)),
            ("prefetch-read", (1, 0), (1, 1)),
            ("write", (0, 1), (1, 2)),
            ("nt-write", (0, 1), (1, 1)),
            ("copy", (1, 1), (2, 3)),
            ("nt-copy", (1, 1), (2, 2)),
            ("update", (1, 1), (2, 2)),
            ("triad", (2, 1), (3, 4)),
        ]
    );
}

/// Follows the pointers in plain Rust: the lines in the order of the walk, until it closes.
fn walked(chase: &Chase, stride: usize) -> Vec<usize> {
    let bytes = chase.memory().as_slice();
    let first = bytes.as_ptr().addr();
    let mut lines = vec![0];
    loop {
        let at = lines[lines.len() - 1] * stride;
        let next = usize::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let line = (next - first) / stride;
        if line == 0 || lines.len() > bytes.len() / stride {
            return lines;
        }
        lines.push(line);
    }
}

fn orders() -> impl Strategy<Value = ChaseOrder> {
    prop_oneof![
        Just(ChaseOrder::Whole),
        Just(ChaseOrder::Forward),
        Just(ChaseOrder::Backward),
        (6u32..14).prop_map(|bits| ChaseOrder::Grouped(Bytes(1 << bits))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_walk_visits_every_line_once(
        order in orders(), lines in 2usize..600, stride in 1usize..33, seed: u64,
    ) {
        let stride = stride * 8;
        let size = Bytes((lines * stride) as u64);
        let chase =
            Chase::new(memory(lines * stride), size, Bytes(stride as u64), order, seed).unwrap();
        prop_assert_eq!(chase.lines(), lines);
        let walked = walked(&chase, stride);
        prop_assert_eq!(walked.len(), lines);
        prop_assert_eq!(walked.iter().collect::<BTreeSet<_>>().len(), lines);
        if let ChaseOrder::Grouped(Bytes(group)) = order {
            // From one group to another, as often as there are groups, and never back.
            let in_group = (usize::try_from(group).unwrap() / stride).max(1);
            let groups = lines.div_ceil(in_group);
            let changes = (0..lines)
                .filter(|&i| walked[i] / in_group != walked[(i + 1) % lines] / in_group)
                .count();
            prop_assert_eq!(changes, if groups == 1 { 0 } else { groups });
        }
    }

    /// The timed loop goes where the pointers lead.
    #[test]
    fn the_loop_follows_the_walk(lines in 2usize..400, loads in 1u64..200, filler in 0usize..8) {
        let size = Bytes((lines * 64) as u64);
        let chase = Chase::new(memory(lines * 64), size, Bytes(64), ChaseOrder::Whole, 3).unwrap();
        let walked = walked(&chase, 64);
        let mut walk = Walk::new(Arc::new(chase), 1);
        let start = walked.iter().position(|&line| line == walk.line(64)).unwrap();
        let first = walk.run(loads);
        let second = walk.run_filled(loads, filler);
        prop_assert!(first >= loads && second >= loads);
        let end = start + usize::try_from(first + second).unwrap();
        prop_assert_eq!(walk.line(64), walked[end % lines]);
    }
}

#[test]
fn chains_start_apart_and_follow_the_walk() {
    for chains in Walk::CHAINS {
        let lines = 4800;
        let size = Bytes(lines * 64);
        let chase = Chase::new(memory(4800 * 64), size, Bytes(64), ChaseOrder::Forward, 0).unwrap();
        let mut walk = Walk::new(Arc::new(chase), chains);
        // Forward, so that the place is the line; loads of each chain, by twelfths.
        assert_eq!(walk.line(64), 0);
        assert_eq!(walk.run(16), 16 * chains as u64);
        assert_eq!(walk.line(64), 16);
    }
    let chase = Chase::new(memory(4800), Bytes(4800), Bytes(8), ChaseOrder::Forward, 0).unwrap();
    assert_eq!(
        Walk::new(Arc::new(chase), 7).run(1),
        16 * 4,
        "the next lower number"
    );
}

#[test]
fn strides_that_cannot_be_are_refused() {
    for stride in [0, 4, 12, 4096, 1 << 40] {
        let chase = Chase::new(
            memory(4096),
            Bytes(4096),
            Bytes(stride),
            ChaseOrder::Whole,
            0,
        );
        assert!(matches!(chase, Err(ChaseError::Stride { .. })), "{stride}");
    }
}

#[test]
fn filled_memory_is_nothing_that_could_be_left_out() {
    let mut memory = memory(usize::try_from(page_size().0).unwrap());
    fill(&mut memory, 1);
    let words = words(memory.as_slice());
    assert!(
        words
            .iter()
            .all(|&word| (1.0..2.0).contains(&f64::from_bits(word)))
    );
    assert!(words.iter().collect::<BTreeSet<_>>().len() > words.len() - 2);
}

#[test]
fn additions_are_counted_in_rounds() {
    assert_eq!(add_chain(1), 64);
    assert_eq!(add_chain(65), 128);
    spin(0);
    spin(3);
}

/// The machine code of each loop, from the target of its backward jump to the jump.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_loops_are_those_that_were_meant() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (name, address) in machine::tests::loops() {
        let _ = writeln!(text, "{name}");
        for line in disassembled_loop(address) {
            let _ = writeln!(text, "    {line}");
        }
    }
    insta::assert_snapshot!(text);
}

/// Equal lines that follow each other are one with a count.
#[cfg(target_arch = "x86_64")]
fn disassembled_loop(address: usize) -> Vec<String> {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter as _, IntelFormatter};
    const FUNCTION_BYTES_MAX: usize = 4096;
    let pointer = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the machine code of a function of this binary, and what follows it; the test
    // program's code is far larger, and readable.
    let code = unsafe { std::slice::from_raw_parts(pointer, FUNCTION_BYTES_MAX) };
    let start = address as u64;
    let all: Vec<_> = Decoder::with_ip(64, code, start, DecoderOptions::NONE)
        .into_iter()
        .take_while(|instruction| instruction.flow_control() != FlowControl::Return)
        .collect();
    let is_jump_back = |instruction: &iced_x86::Instruction| {
        instruction.flow_control() == FlowControl::ConditionalBranch
            && (start..instruction.ip()).contains(&instruction.near_branch_target())
    };
    // An instruction that repeats itself is the loop, and what the compiler put around it is not.
    let jump = all
        .iter()
        .position(iced_x86::Instruction::has_rep_prefix)
        .or_else(|| all.iter().position(is_jump_back))
        .expect("a function with a loop");
    let target = all[jump].near_branch_target();
    let first = all[..jump]
        .iter()
        .position(|instruction| instruction.ip() == target);
    let mut formatter = IntelFormatter::new();
    let mut lines: Vec<(String, usize)> = Vec::new();
    for instruction in &all[first.unwrap_or(jump)..=jump] {
        let mut line = String::new();
        formatter.format(instruction, &mut line);
        if instruction.flow_control() == FlowControl::ConditionalBranch {
            // Where the loop begins differs from build to build.
            line = "jne back".to_owned();
        }
        match lines.last_mut() {
            Some(last) if last.0 == line => last.1 += 1,
            _ => lines.push((line, 1)),
        }
    }
    lines
        .into_iter()
        .map(|(line, count)| {
            if count == 1 {
                line
            } else {
                format!("{count} × {line}")
            }
        })
        .collect()
}
