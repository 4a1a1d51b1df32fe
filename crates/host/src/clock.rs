use std::time::{Duration, Instant, SystemTime};

use crate::Live;

/// Tells the time, and lets it pass.
pub trait Clock {
    /// Time since a fixed moment in the past; never goes back.
    fn now(&self) -> Duration;

    /// Time since 1970-01-01T00:00:00Z.
    fn since_epoch(&self) -> Duration;

    /// Returns once this much time has passed.
    fn sleep(&self, time: Duration);
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock everyone else goes through"
)]
impl Clock for Live {
    fn now(&self) -> Duration {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn since_epoch(&self) -> Duration {
        // A clock set before 1970 is no reason to fail.
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
