//! Recordings: any bytes give observations that can be shown, or an error.
//!
//! The first byte chooses: the rest is a file; it is put into a good file; or its lines of JSON are
//! packed, with good checksums, as the head and the observations.

#![no_main]

use std::io::Cursor;
use std::time::Duration;

use homenode_observe::{Recording, RecordingHead, View, pack};
use homenode_report::{stat_report, stat_text};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const HEAD: &str = r#"{"schema":"homenode.recording/1","version":"1","host":"h","cpus":[[0,"0-1"]],"distances":[[0,0,10]]}"#;
const OBSERVATION: &str = r#"{"taken_at":{"secs":9,"nanos":0},"since_epoch":{"secs":9,"nanos":0},"nodes":[],"pressure":{"absent":"x"},"processes":[],"groups":[],"unreadable":0,"took":{"secs":0,"nanos":0}}"#;

fn packed(lines: impl Iterator<Item = String>) -> Vec<u8> {
    let values = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let members = values.zip(1..).map(|(value, second)| {
        pack(&value, Duration::from_secs(second)).expect("it can be written")
    });
    members.flatten().collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&way, rest)) = data.split_first() else { return };
    let good = || packed([HEAD, OBSERVATION, OBSERVATION].map(str::to_owned).into_iter());
    let bytes = match way {
        b'b' => rest.to_vec(),
        b'i' => {
            let mut bytes = good();
            let at = rest.first().map_or(0, |&at| usize::from(at) * bytes.len() / 255);
            bytes.splice(at..at, rest.iter().skip(1).copied());
            bytes
        }
        _ => packed(String::from_utf8_lossy(rest).lines().map(str::to_owned)),
    };
    let length = bytes.len() as u64;
    let Ok(mut recording) = Recording::open(Cursor::new(bytes)) else { return };
    assert_eq!(recording.head.schema, RecordingHead::SCHEMA);
    assert!(recording.whole_bytes <= length);
    let mut before = None;
    for position in 0..recording.members.len() {
        let Ok(observation) = recording.observation(position) else { continue };
        let earlier = before.as_ref().unwrap_or(&observation);
        for view in [View::Processes, View::Workloads] {
            let _ = stat_text(&stat_report(&[], earlier, &observation, view, 20), 80);
        }
        before = Some(observation);
    }
});
