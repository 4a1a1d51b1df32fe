//! Drives a mover to its end.

use std::time::Duration;

use homenode_host::{Clock, Hands};
use homenode_observe::{Locality, Random, locate};
use homenode_units::{Bytes, Reading};

use crate::plan::EFFORT;
use crate::{ActError, Ended, Machine, Mover, Outcome, PaceOptions, Plan, Step, Tally};

/// Who watches a run, and may end it.
pub trait Control {
    /// Whether to end; asked before each call and every 50 ms of waiting.
    fn is_interrupted(&self) -> bool;

    /// Told after each step.
    fn progress(&mut self, progress: &Progress<'_>);
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What happened so far.
    pub tally: &'a Tally,
    /// Addresses looked at. Unit: bytes.
    pub walked: Bytes,
    /// Addresses to look at in all. Unit: bytes.
    pub span: Bytes,
    /// Since the first step.
    pub elapsed: Duration,
    /// The call that was just made, if one was: what it was to move, and how long it took.
    pub call: Option<(Bytes, Duration)>,
}

/// Waiting is cut into pieces of this length, so that it can be interrupted.
const NAP: Duration = Duration::from_millis(50);

/// Carries a plan out and looks afterwards where the memory lies.
///
/// # Errors
///
/// [`ActError`], as [`Mover::new`] and [`Mover::step`]. That the process ends meanwhile is no
/// error, it is [`Ended::ProcessEnded`].
pub fn migrate<M: Machine + ?Sized>(
    machine: &M,
    plan: &Plan,
    pace: PaceOptions,
    control: &mut dyn Control,
) -> Result<Outcome, ActError> {
    let mut mover = Mover::new(machine, plan, pace)?;
    let start = machine.now();
    let span = plan.span();
    let ended = loop {
        if control.is_interrupted() {
            break Ended::Interrupted;
        }
        let step = mover.step()?;
        control.progress(&Progress {
            tally: mover.tally(),
            walked: mover.walked(),
            span,
            elapsed: machine.now().saturating_sub(start),
            call: match &step {
                Step::Called { batch, took, .. } => Some((*batch, *took)),
                _ => None,
            },
        });
        match step {
            Step::Walked => {}
            Step::Called { gap, .. } | Step::Wait(gap) => wait(machine, gap, control),
            Step::Ended(ended) => break ended,
        }
    };
    let elapsed = machine.now().saturating_sub(start);
    let verified = match ended {
        Ended::ProcessEnded => Reading::absent("the process has ended"),
        _ => verify(machine, plan),
    };
    Ok(Outcome {
        ended,
        tally: mover.tally().clone(),
        elapsed,
        verified,
    })
}

fn wait<M: Clock + Hands + ?Sized>(machine: &M, time: Duration, control: &dyn Control) {
    let mut left = time;
    while !left.is_zero() && !control.is_interrupted() {
        let nap = left.min(NAP);
        machine.sleep(nap);
        left -= nap;
    }
}

fn verify<M: Machine + ?Sized>(machine: &M, plan: &Plan) -> Reading<Locality> {
    let nodes = plan.from.union(&plan.to());
    match locate(
        machine,
        machine,
        plan.pid,
        &nodes,
        EFFORT,
        &mut Random::new(2),
    ) {
        Ok(located) => Reading::Known(located),
        Err(error) => Reading::absent(error.to_string()),
    }
}
