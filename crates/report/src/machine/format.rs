//! How values are written for people, and how foreign text is made harmless.

use std::fmt::Write;
use std::time::Duration;

use homenode_observe::{Locality, Method};
use homenode_units::NodeSet;

/// What each counter means, in the order of [`homenode_observe::COUNTER_NAMES`].
pub(crate) const COUNTER_MEANINGS: [&str; 6] = [
    "pages placed here as wanted",
    "pages placed here although another node was wanted, which had no room",
    "pages wanted here and placed elsewhere, for lack of room",
    "pages placed here as interleaving wanted",
    "pages placed here for a program running here",
    "pages placed here for a program running on another node",
];

/// Text that others chose, made safe to show on a terminal: what could move the cursor, change
/// colours or turn the writing direction is shown as its number.
pub(crate) fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        let directs_text = matches!(
            char,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        );
        if char.is_control() || directs_text {
            safe.extend(char.escape_default());
        } else {
            safe.push(char);
        }
    }
    safe
}

/// The same made safe for HTML, in text and in quoted attributes.
pub(crate) fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in harmless(text).chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// At most `width` characters; what was cut shows as an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// `70%`; what is neither none nor all never looks so.
pub(crate) fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.01 => "<1%".to_owned(),
        share if share < 1.0 && share > 0.99 => ">99%".to_owned(),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A rate without decimals unless it is small.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 0.1 {
        return "<0.1".to_owned();
    }
    if per_second > 0.0 && per_second < 10.0 {
        return format!("{per_second:.1}");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are differences of u64 over time, never negative, and the cast saturates"
    )]
    let whole = per_second.round() as u64;
    grouped(whole)
}

/// `node 0`, `nodes 0-1`.
pub(crate) fn nodes_named(nodes: &NodeSet) -> String {
    match nodes.len() {
        0 => "no node".to_owned(),
        1 => format!("node {nodes}"),
        _ => format!("nodes {nodes}"),
    }
}

/// Shares by node, largest first: `1: 71%, 0: 29%`; what is below half a percent is left out, and
/// what comes after the fourth is summed up.
pub(crate) fn shares(locality: &Locality) -> String {
    const SHOWN_MAX: usize = 4;
    let mut shares: Vec<_> = locality
        .nodes
        .iter()
        .filter(|share| share.share >= 0.005)
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.node.cmp(&b.node)));
    let (shown, others) = shares.split_at(shares.len().min(SHOWN_MAX));
    let mut words: Vec<String> = shown
        .iter()
        .map(|share| format!("{}: {}", share.node, percent(share.share)))
        .collect();
    if !others.is_empty() {
        let rest = others.iter().map(|share| share.share).sum();
        words.push(format!("{} others: {}", others.len(), percent(rest)));
    }
    words.join(", ")
}

/// How sure the shares are: `±3.1%`; empty where nothing was left to chance.
pub(crate) fn bound(locality: &Locality) -> String {
    match locality.method {
        Method::OnlyNode | Method::AllPages { .. } => String::new(),
        Method::Sampled { .. } => format!("±{:.1}%", locality.bound() * 100.0),
    }
}

/// RFC 3339 in UTC, from the time since 1970.
pub(crate) fn timestamp(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a day counted from 1970-01-01 (H. Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`): years begin in March, so that leap days come last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Breaks text at blanks into lines of at most `width` characters; longer words stand alone.
pub(crate) fn wrap(text: &str, width: usize, first: &str, further: &str) -> String {
    let mut wrapped = String::new();
    let mut line = first.to_owned();
    let mut line_is_empty = true;
    for word in text.split(' ') {
        let length = line.chars().count() + usize::from(!line_is_empty) + word.chars().count();
        if !line_is_empty && length > width {
            let _ = writeln!(wrapped, "{}", line.trim_end());
            further.clone_into(&mut line);
            line_is_empty = true;
        }
        if !line_is_empty {
            line.push(' ');
        }
        line.push_str(word);
        line_is_empty = false;
    }
    let _ = writeln!(wrapped, "{}", line.trim_end());
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_steer_a_terminal_or_a_page() {
        assert_eq!(
            harmless("a\u{1b}[2Jb\u{9b}c\u{202e}d\n"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d\\n"
        );
        assert_eq!(harmless("größe 大"), "größe 大");
        assert_eq!(html("<b a='\"&\0"), "&lt;b a=&#39;&quot;&amp;\\u{0}");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rate(0.04), "<0.1");
        assert_eq!(rate(99_999.6), "100,000");
        let written: Vec<_> = [0.0, 0.001, 0.7, 0.999, 1.0].map(percent).into();
        assert_eq!(written, ["0%", "<1%", "70%", ">99%", "100%"]);
    }

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_785_542_400, "2026-08-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("one two three", 9, "- ", "  "), "- one two\n  three\n");
        assert_eq!(wrap("overlongword x", 4, "", ""), "overlongword\nx\n");
    }
}
