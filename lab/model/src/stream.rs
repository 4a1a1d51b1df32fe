//! Runs of neighbouring lines, which a CPU fetches ahead.
//!
//! A real core sees that lines are asked for in order and asks for the next ones itself, so that
//! many are on their way at once. Here, with `n` lines in flight, a line of a stream counts as asked
//! for when the line `n - 1` before it was used. At a latency of `l` a stream so gets at most `n`
//! lines per `l`: what Little's law allows, and where bandwidth comes from.
//!
//! Lines are told apart by their virtual numbers: neighbours in a buffer are neighbours there.

/// The streams that one CPU follows.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<Stream>,
    /// How many lines ahead of its use a line is asked for.
    ahead: usize,
    /// Counts uses, to find the stream that was left alone for longest.
    uses: u64,
    /// The last line that belonged to no stream, for each of a few places.
    starts: [u64; STARTS],
    next_start: usize,
}

#[derive(Clone, Debug)]
struct Stream {
    /// The line that is expected next.
    next: u64,
    backwards: bool,
    /// When the last lines were used, as a ring. Unit: picoseconds.
    used: Vec<u64>,
    at: usize,
    last_use: u64,
}

/// Streams followed at once: a core of today follows 16 to 32.
const STREAMS: usize = 16;
/// Lines remembered as possible first lines of a stream.
const STARTS: usize = 16;
/// No line has this number.
const NONE: u64 = u64::MAX;

impl Streams {
    /// No streams yet; `in_flight` lines of each may be on their way at once. With one, each line
    /// is asked for when it is used, so that nothing is a stream.
    #[must_use]
    pub fn new(in_flight: u16) -> Self {
        Self {
            streams: Vec::with_capacity(STREAMS),
            ahead: usize::from(in_flight).saturating_sub(1),
            uses: 0,
            starts: [NONE; STARTS],
            next_start: 0,
        }
    }

    /// When a line that is used `now` was asked for: in the past if it belongs to a stream.
    ///
    /// `None` where it belongs to none; then nobody asked for it before.
    pub fn asked_for(&mut self, line: u64, now: u64) -> Option<u64> {
        if self.ahead == 0 {
            return None;
        }
        self.uses += 1;
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.next == line) {
            stream.last_use = self.uses;
            stream.next = stream.after(line);
            let asked = std::mem::replace(&mut stream.used[stream.at], now);
            stream.at = (stream.at + 1) % stream.used.len();
            return Some(asked);
        }
        // Two neighbours are a stream; the line after them is the first that was fetched ahead.
        for start in &mut self.starts {
            let backwards = start.wrapping_sub(1) == line && *start != NONE;
            if backwards || (start.wrapping_add(1) == line && *start != NONE) {
                *start = NONE;
                self.follow(line, backwards, now);
                return None;
            }
        }
        self.starts[self.next_start] = line;
        self.next_start = (self.next_start + 1) % STARTS;
        None
    }

    fn follow(&mut self, line: u64, backwards: bool, now: u64) {
        let mut stream = Stream {
            next: line,
            backwards,
            used: Vec::new(),
            at: 0,
            last_use: self.uses,
        };
        stream.next = stream.after(line);
        if self.streams.len() < STREAMS {
            // Everything in flight is asked for when the stream is found.
            stream.used = vec![now; self.ahead];
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.last_use) {
            stream.used = std::mem::take(&mut oldest.used);
            stream.used.fill(now);
            *oldest = stream;
        }
    }
}

impl Stream {
    fn after(&self, line: u64) -> u64 {
        if self.backwards {
            line.wrapping_sub(1)
        } else {
            line + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads lines one after the other at a fixed latency; returns the time per line at the end.
    fn time_per_line(in_flight: u16, latency: u64, lines: impl Iterator<Item = u64>) -> u64 {
        let mut streams = Streams::new(in_flight);
        let mut now = 0;
        let mut times = Vec::new();
        for line in lines {
            let asked = streams.asked_for(line, now).unwrap_or(now);
            now = now.max(asked + latency);
            times.push(now);
        }
        let half = times.len() / 2;
        (times[times.len() - 1] - times[half]) / (times.len() - 1 - half) as u64
    }

    #[test]
    fn a_stream_gets_as_many_lines_per_latency_as_are_in_flight() {
        for in_flight in [1, 4, 16, 40] {
            let time = time_per_line(in_flight, 80_000, 0..2_000);
            let expected = 80_000 / u64::from(in_flight);
            assert!(
                time.abs_diff(expected) * 20 <= expected,
                "{in_flight}: {time}"
            );
        }
    }

    #[test]
    fn a_stream_may_go_backwards() {
        assert!(time_per_line(16, 80_000, (0..2_000).rev()) < 5_300);
    }

    #[test]
    fn lines_out_of_order_wait_for_each() {
        // 7919 is a prime: all lines, never two neighbours in a row.
        let lines = (0..4_000).map(|i| i * 7_919 % 100_003);
        assert_eq!(time_per_line(16, 80_000, lines), 80_000);
    }

    #[test]
    fn several_streams_are_followed_at_once() {
        let lines = (0..8_000).map(|i| i / 8 + (i % 8) * 1_000_000);
        assert!(time_per_line(16, 80_000, lines) < 800);
    }
}
