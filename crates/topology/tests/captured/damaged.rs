//! Captured machines with files deleted, cut and filled with garbage: never a panic, always a
//! topology that is possible, or an error that names a file.

use homenode_host::{Files, Recording, Snapshot};
use homenode_topology::{Detail, Source, read_topology};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::archives::archives;

/// What happens to a file.
#[derive(Debug, Clone)]
enum Damage {
    Delete,
    Cut(prop::sample::Index),
    Fill(Vec<u8>),
    Replace(&'static str),
}

/// Texts that are well-formed somewhere and wrong elsewhere.
const TEXTS: [&str; 14] = [
    "-1\n",
    "0\n",
    "4294967295\n",
    "99999999999999999999\n",
    "0-1048575\n",
    "3-1\n",
    "ffffffff,ffffffff,ffffffff\n",
    "00000000\n",
    "",
    "\0\0\0\0",
    "Node 0 MemTotal: 18446744073709551615 kB\nNode 0 MemFree: 1 kB\n",
    "10 10 10\n",
    "max 100000\n",
    "Cpus_allowed_list:\t4096\nMems_allowed_list:\t77\n",
];

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        2 => Just(Damage::Delete),
        2 => any::<prop::sample::Index>().prop_map(Damage::Cut),
        1 => prop::collection::vec(any::<u8>(), 0..64).prop_map(Damage::Fill),
        3 => prop::sample::select(&TEXTS[..]).prop_map(Damage::Replace),
    ]
}

fn apply(machine: &mut Snapshot, path: &str, content: &[u8], damage: &Damage) {
    match damage {
        Damage::Delete => machine.remove(path),
        Damage::Cut(at) => machine.add_file(path, &content[..at.index(content.len() + 1)]),
        Damage::Fill(bytes) => machine.add_file(path, bytes.as_slice()),
        Damage::Replace(text) => machine.add_file(path, *text),
    }
}

/// Only what the reader reads, so that every hit counts.
fn read_part(machine: &Snapshot) -> Snapshot {
    let recording = Recording::new(machine);
    read_topology(
        &recording,
        Source::Captured("whole".to_owned()),
        Detail::Full,
    )
    .expect("an undamaged machine");
    recording.into_snapshot()
}

fn check(files: &(dyn Files + Sync)) -> Result<(), TestCaseError> {
    for detail in [Detail::Fast, Detail::Full] {
        match read_topology(files, Source::Captured("damaged".to_owned()), detail) {
            Ok(topology) => {
                prop_assert!(topology.check().is_ok());
                let verdict = topology.verdict();
                prop_assert!(!verdict.headline.is_empty());
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                prop_assert!(
                    format!("{error:#}").contains('/'),
                    "{error:#} names no file"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn damaged_machines_are_read_or_refused_but_never_a_panic() {
    for archive in archives() {
        for (root, machine) in archive.machines() {
            let machine = read_part(&machine);
            let paths: Vec<String> = machine.files().map(|(path, _)| path.to_owned()).collect();
            // The files that shape everything are few among thousands: hit them on purpose.
            let central: Vec<String> = paths
                .iter()
                .filter(|path| !path.contains("/cpu/cpu") && !path.contains("/pci"))
                .cloned()
                .collect();
            let hits = prop::collection::vec(
                (
                    prop::sample::select(paths),
                    prop::sample::select(central),
                    damage(),
                    damage(),
                ),
                1..12,
            );
            let mut runner = TestRunner::new(Config {
                cases: 48,
                ..Config::default()
            });
            let outcome = runner.run(&hits, |hits| {
                let mut damaged = machine.clone();
                for (anywhere, central, first, second) in &hits {
                    for (path, damage) in [(anywhere, first), (central, second)] {
                        let content: Vec<u8> = machine
                            .files()
                            .find(|(known, _)| known == path)
                            .map(|(_, content)| content.to_vec())
                            .unwrap_or_default();
                        apply(&mut damaged, path, &content, damage);
                    }
                }
                check(&damaged)
            });
            if let Err(error) = outcome {
                panic!("{root}: {error}");
            }
        }
    }
}

#[test]
fn a_whole_folder_may_be_missing() {
    for archive in archives() {
        for (root, machine) in archive.machines() {
            let machine = read_part(&machine);
            for folder in [
                "/proc",
                "/sys/devices/system/node",
                "/sys/devices/system/node/node0",
                "/sys/devices/system/cpu",
                "/sys/devices/system/cpu/cpu0",
                "/sys/devices/system/cpu/online",
                "/sys/bus",
                "/sys",
            ] {
                let mut damaged = machine.clone();
                damaged.remove(folder);
                check(&damaged).unwrap_or_else(|error| panic!("{root} without {folder}: {error}"));
            }
        }
    }
}
