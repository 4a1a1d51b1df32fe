use super::*;

const NODES: [NodeId; 3] = [NodeId(0), NodeId(2), NodeId(5)];

fn row(label: &str, cells: [Option<ByteCount>; 3]) -> Row {
    Row {
        label: label.as_bytes().to_vec(),
        cells: cells.to_vec(),
    }
}

fn mib(mib: ByteCount) -> Option<ByteCount> {
    Some(mib << 20)
}

fn printed(kind: Kind, rows: &[Row], look: Look, width: usize) -> String {
    let mut out = Vec::new();
    let table = Table {
        kind,
        nodes: &NODES,
        rows: rows.to_vec(),
    };
    table.print(look, width, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn compact() -> Look {
    Look {
        compact: true,
        ..Look::default()
    }
}

#[test]
fn the_bare_table_has_counts_and_no_totals() {
    let rows = [row("numa_hit", [Some(5), None, Some(123_456)])];
    assert_eq!(
        printed(Kind::Bare, &rows, Look::default(), 1000),
        "                           node0           node2           node5\n\
         numa_hit                       5                          123456\n"
    );
}

#[test]
fn wide_tables_fold_and_repeat_labels() {
    let rows = [row("Heap", [mib(1), mib(2), mib(3)])];
    let kind = Kind::Processes { heading: "PID" };
    let folded = "\
PID                        Node 0          Node 2
----------------  --------------- ---------------
Heap                         1.00            2.00
----------------  --------------- ---------------
Total                        1.00            2.00

PID                        Node 5           Total
----------------  --------------- ---------------
Heap                         3.00            6.00
----------------  --------------- ---------------
Total                        3.00            6.00
";
    for width in [49, 64] {
        assert_eq!(printed(kind, &rows, Look::default(), width), folded);
    }
    // One column per block where not even one fits.
    let blocks = |width| {
        printed(kind, &rows, Look::default(), width)
            .matches("PID")
            .count()
    };
    assert_eq!([blocks(0), blocks(48), blocks(65)], [4, 4, 2]);
    assert_eq!(blocks(17 + 4 * 16), 1);
}

#[test]
fn compact_columns_are_one_wider_than_their_longest_text() {
    let rows = [
        row("MemTotal", [mib(7), mib(1_234_567), mib(0)]),
        row("MemFree", [None, mib(1), Some(512 << 10)]),
    ];
    let expected = "
          Node 0  Node 2 Node 5   Total
          ------ ------- ------ -------
MemTotal       7 1234567      0 1234574
MemFree                1      0       2
";
    assert_eq!(printed(Kind::System, &rows, compact(), 1000), expected[1..]);
}

#[test]
fn long_labels_and_numbers_lose_their_end() {
    let label = "123456 (a name of sixteen)";
    let rows = [row(label, [Some(1 << 90), mib(1), mib(1)])];
    let kind = Kind::Processes { heading: "PID" };
    let wide = printed(kind, &rows, Look::default(), 1000);
    let line = wide.lines().nth(2).unwrap();
    assert_eq!(&line[..40], "123456 (a name of sixtee1180591620717411");
    let narrow = printed(kind, &rows, compact(), 1000);
    let line = narrow.lines().nth(2).unwrap();
    assert_eq!(&line[..32], "123456 (a name o1180591620717411");
}

#[test]
fn zeros_are_left_out_on_request() {
    let look = Look {
        skip_zeros: true,
        ..compact()
    };
    let rows = [
        row("Private", [mib(0), mib(0), None]),
        row("Heap", [mib(4), Some(1), mib(0)]),
    ];
    let expected = "
         Node 0 Node 2 Total
         ------ ------ -----
Heap          4      0     4
-------  ------ ------ -----
Total         4      0     4
";
    assert_eq!(
        printed(Kind::Processes { heading: "" }, &rows, look, 1000),
        expected[1..]
    );
    let nothing = printed(Kind::System, &rows[..1], look, 1000);
    assert_eq!(nothing, "Table has no non-zero data.\n");
    assert_eq!(
        printed(Kind::System, &[], Look::default(), 1000),
        "Table has no data.\n"
    );
}

#[test]
fn rows_are_sorted_by_node_id_or_total_and_equal_ones_as_upstream_has_them() {
    let rows = [
        row("A", [mib(1), mib(0), None]),
        row("B", [mib(0), mib(9), mib(1)]),
        row("C", [mib(0), mib(0), mib(2)]),
        row("D", [mib(0), mib(0), mib(9)]),
    ];
    let order = |key| {
        let look = Look {
            sort: Some(key),
            ..Look::default()
        };
        let labels: String = printed(Kind::System, &rows, look, 1000)
            .lines()
            .skip(2)
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect();
        labels
    };
    assert_eq!(order(SortKey::Node(NodeId(5))), "DCBA");
    assert_eq!(order(SortKey::Node(NodeId(2))), "BACD");
    assert_eq!(order(SortKey::Total), "BDCA");
    assert_eq!(order(SortKey::Node(NodeId(1))), "BDCA", "no such node");
}
