//! All tests that the report shows, in one run.

use crate::{
    BandwidthOptions, Cell, CoreToCoreOptions, FirstTouchOptions, InterleaveOptions,
    LatencyOptions, LoadedOptions, MeasureError, Session, WorkingSetOptions, bandwidth,
    core_to_core, first_touch, interleave, latency, loaded_latency, working_set,
};

/// One test of a run of all: its part of the whole time, and how to run it.
type Part = (
    f64,
    fn(&mut Session<'_>, bool) -> Result<Vec<Cell>, MeasureError>,
);

/// The parts of the time add up to 1; the most important numbers come first.
const PARTS: [Part; 7] = [
    (0.20, |session, quick| {
        latency(session, &LatencyOptions { size: None, quick })
    }),
    (0.25, |session, quick| {
        let options = BandwidthOptions {
            quick,
            ..BandwidthOptions::default()
        };
        bandwidth(session, &options)
    }),
    (0.10, |session, quick| {
        core_to_core(session, &CoreToCoreOptions { quick })
    }),
    (0.15, |session, quick| {
        working_set(session, &WorkingSetOptions { size: None, quick })
    }),
    (0.15, |session, quick| {
        loaded_latency(session, &LoadedOptions { size: None, quick })
    }),
    (0.10, |session, _| {
        interleave(session, &InterleaveOptions::default())
    }),
    (0.05, |session, _| {
        first_touch(session, &FirstTouchOptions::default())
    }),
];

/// Runs all tests, one after the other, each in its part of the time.
///
/// A test that there is not enough memory for is left out with a note.
///
/// # Errors
///
/// The first test's, when none could run.
pub fn all(session: &mut Session<'_>, quick: bool) -> Result<Vec<Cell>, MeasureError> {
    let mut cells = Vec::new();
    let mut first_error = None;
    let mut left = 1.0;
    for (part, run) in PARTS {
        let outer = session.begin_part(part / left);
        match run(session, quick) {
            Ok(more) => cells.extend(more),
            Err(error) => {
                session.note(format!("a test was left out: {error}"));
                first_error.get_or_insert(error);
            }
        }
        session.end_part(outer);
        left -= part;
        if session.is_over() {
            break;
        }
    }
    match first_error {
        Some(error) if cells.is_empty() => Err(error),
        _ => Ok(cells),
    }
}
