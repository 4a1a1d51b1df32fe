//! The progress bar, and the interrupt that ends a run in order.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use homenode_measure::{Control, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

/// What people see while it runs.
pub(super) struct Shown {
    stop: Arc<AtomicBool>,
    bar: Option<ProgressBar>,
}

/// Parts of the bar.
const PARTS: u64 = 1000;

impl Shown {
    /// Watches for interrupts; shows a bar where standard error is a terminal.
    pub(super) fn new() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second one ends the program at once; all it holds is its own memory.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
                .context("cannot watch for interrupts")?;
        }
        let bar = stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {msg}");
            // No thread of its own redraws it: that would disturb what is measured.
            ProgressBar::new(PARTS)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Ok(Self { stop, bar })
    }

    /// Takes the bar away.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Control for Shown {
    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        if let Some(bar) = &self.bar {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of 1000 parts"
            )]
            let part = (progress.time_share * 1000.0) as u64;
            bar.set_message(format!(
                "{}, {} of {} done",
                progress.step, progress.converged, progress.cells
            ));
            bar.set_position(part.min(PARTS));
        }
    }
}
