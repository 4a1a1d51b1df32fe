//! How a guest talks to the model: instructions that do nothing.
//!
//! `nopl 0x484e0000+mark(%rax)` is a no-op on every x86-64 CPU, so a program that marks runs
//! anywhere; in the lab the plugin sees the instruction and acts. "HN" is 0x484e.

/// Starts the model, or goes on with it: until then an instruction takes a nanosecond, memory is
/// free, and nothing is counted.
pub const START: u16 = 1;
/// Writes the counters out.
pub const REPORT: u16 = 2;
/// Sets the counters to zero.
pub const RESET: u16 = 3;
/// Stops the model until the next start, so that a program makes its data at the emulator's speed.
/// It goes on with empty caches, as nobody saw what they would hold.
pub const STOP: u16 = 4;

const OPCODE: [u8; 3] = [0x0f, 0x1f, 0x80];
const SIGN: [u8; 2] = [0x4e, 0x48];

/// The mark that an instruction carries.
///
/// `instruction` holds its machine code, without what follows it.
#[must_use]
pub fn of_instruction(instruction: &[u8]) -> Option<u16> {
    match instruction {
        [opcode @ .., low, high, sign0, sign1] if opcode == OPCODE && [*sign0, *sign1] == SIGN => {
            Some(u16::from_le_bytes([*low, *high]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signed_no_op_is_a_mark() {
        let report = [0x0f, 0x1f, 0x80, 0x02, 0x00, 0x4e, 0x48];
        assert_eq!(of_instruction(&report), Some(REPORT));
        // The same no-op as compilers use it for padding.
        assert_eq!(of_instruction(&[0x0f, 0x1f, 0x80, 0, 0, 0, 0]), None);
        assert_eq!(of_instruction(&report[..6]), None);
        assert_eq!(
            of_instruction(&[0x66, 0x0f, 0x1f, 0x80, 2, 0, 0x4e, 0x48]),
            None
        );
        assert_eq!(of_instruction(&[]), None);
    }
}
