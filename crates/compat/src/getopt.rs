//! Command lines as `getopt_long(3)` reads them, up to the first word that is no option.
//!
//! Short options may stand together (`-TVd`) with the last one's argument attached or apart; long
//! options may be abbreviated and take their argument after `=` or apart. `--` ends the options.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// One option that a tool knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<T> {
    /// `membind`; empty when there is only a letter.
    pub(crate) long: &'static str,
    /// `m`; none when there is only a word.
    pub(crate) short: Option<u8>,
    /// Whether an argument follows.
    pub(crate) takes_argument: bool,
    /// What it means to the tool.
    pub(crate) meaning: T,
    /// Whether an abbreviation that fits several options means this one, if it is the only such.
    pub(crate) wins_abbreviation: bool,
}

/// Why a word is no option; shown as the C library words it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrongOption {
    InvalidShort(u8),
    ShortNeedsArgument(u8),
    Unrecognized(OsString),
    Ambiguous(OsString, Vec<&'static str>),
    LongNeedsArgument(&'static str),
    LongTakesNone(&'static str),
}

impl fmt::Display for WrongOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidShort(letter) => {
                write!(f, "invalid option -- '{}'", char::from(*letter))
            }
            Self::ShortNeedsArgument(letter) => {
                write!(
                    f,
                    "option requires an argument -- '{}'",
                    char::from(*letter)
                )
            }
            Self::Unrecognized(word) => write!(f, "unrecognized option '{}'", word.display()),
            Self::Ambiguous(word, fitting) => {
                write!(
                    f,
                    "option '{}' is ambiguous; possibilities:",
                    word.display()
                )?;
                fitting.iter().try_for_each(|name| write!(f, " '--{name}'"))
            }
            Self::LongNeedsArgument(name) => write!(f, "option '--{name}' requires an argument"),
            Self::LongTakesNone(name) => write!(f, "option '--{name}' doesn't allow an argument"),
        }
    }
}

/// An option as it was found, with its argument.
pub(crate) type Found<'a, T> = Result<(T, Option<&'a OsStr>), WrongOption>;

/// Walks over the words.
#[derive(Debug)]
pub(crate) struct Getopt<'a, T> {
    known: &'a [Known<T>],
    words: &'a [OsString],
    /// Letters of the current word that are still to be read.
    letters: &'a [u8],
    done: bool,
}

impl<'a, T: Copy> Getopt<'a, T> {
    pub(crate) fn new(known: &'a [Known<T>], words: &'a [OsString]) -> Self {
        Self {
            known,
            words,
            letters: &[],
            done: false,
        }
    }

    /// The words behind the options.
    pub(crate) fn rest(&self) -> &'a [OsString] {
        self.words
    }

    fn next_word(&mut self) -> Option<&'a OsString> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(word)
    }

    fn short(&mut self, letter: u8) -> Found<'a, T> {
        let known = self
            .known
            .iter()
            .find(|known| known.short == Some(letter))
            .ok_or(WrongOption::InvalidShort(letter))?;
        if !known.takes_argument {
            return Ok((known.meaning, None));
        }
        let attached = std::mem::take(&mut self.letters);
        let argument = if attached.is_empty() {
            self.next_word()
                .ok_or(WrongOption::ShortNeedsArgument(letter))?
        } else {
            OsStr::from_bytes(attached)
        };
        Ok((known.meaning, Some(argument)))
    }

    fn long(&mut self, word: &'a OsStr) -> Found<'a, T> {
        let text = &word.as_bytes()[2..];
        let (name, attached) = match text.iter().position(|&byte| byte == b'=') {
            Some(at) => (&text[..at], Some(OsStr::from_bytes(&text[at + 1..]))),
            None => (text, None),
        };
        let known = self.find_long(word, name)?;
        let argument = match (known.takes_argument, attached) {
            (true, None) => Some(
                self.next_word()
                    .ok_or(WrongOption::LongNeedsArgument(known.long))?
                    .as_os_str(),
            ),
            (true, attached) => attached,
            (false, None) => None,
            (false, Some(_)) => return Err(WrongOption::LongTakesNone(known.long)),
        };
        Ok((known.meaning, argument))
    }

    fn find_long(&self, word: &OsStr, name: &[u8]) -> Result<&'a Known<T>, WrongOption> {
        let fitting: Vec<&Known<T>> = self
            .known
            .iter()
            .filter(|known| !known.long.is_empty() && known.long.as_bytes().starts_with(name))
            .collect();
        let exact = fitting
            .iter()
            .find(|known| known.long.as_bytes() == name)
            .copied();
        let mut winners = fitting
            .iter()
            .filter(|known| known.wins_abbreviation)
            .copied();
        match (exact, fitting.as_slice(), winners.next(), winners.next()) {
            (Some(known), ..) | (None, &[known], ..) | (None, _, Some(known), None) => Ok(known),
            (None, [], ..) => Err(WrongOption::Unrecognized(word.to_owned())),
            (None, several, ..) => Err(WrongOption::Ambiguous(
                word.to_owned(),
                several.iter().map(|known| known.long).collect(),
            )),
        }
    }
}

impl<'a, T: Copy> Iterator for Getopt<'a, T> {
    type Item = Found<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((&letter, rest)) = self.letters.split_first() {
            self.letters = rest;
            return Some(self.short(letter));
        }
        if self.done {
            return None;
        }
        let word = self.words.first()?;
        let bytes = word.as_bytes();
        // A lone `-` is a word like any other.
        if bytes.len() < 2 || bytes[0] != b'-' {
            self.done = true;
            return None;
        }
        self.next_word();
        if bytes == b"--" {
            self.done = true;
            return None;
        }
        if bytes[1] == b'-' {
            return Some(self.long(word));
        }
        self.letters = &bytes[2..];
        Some(self.short(bytes[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn known(long: &'static str, short: u8, takes_argument: bool) -> Known<char> {
        Known {
            long,
            short: Some(short),
            takes_argument,
            meaning: short as char,
            wins_abbreviation: true,
        }
    }

    const KNOWN: [Known<char>; 5] = [
        known("membind", b'm', true),
        known("show", b's', false),
        known("shm", b'S', true),
        known("verify", b'V', false),
        Known {
            long: "version",
            short: None,
            takes_argument: false,
            meaning: 'v',
            wins_abbreviation: false,
        },
    ];

    /// What is found, as `m=0 s` or the first error, and the words that are left.
    fn read(line: &str) -> (String, String) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut getopt = Getopt::new(&KNOWN, &words);
        let mut found = Vec::new();
        for option in getopt.by_ref() {
            match option {
                Ok((meaning, None)) => found.push(meaning.to_string()),
                Ok((meaning, Some(argument))) => {
                    found.push(format!("{meaning}={}", argument.display()));
                }
                Err(wrong) => return (wrong.to_string(), String::new()),
            }
        }
        let rest = getopt.rest().join(OsStr::new(" "));
        (found.join(" "), rest.into_string().unwrap())
    }

    #[test]
    fn options_are_read_up_to_the_first_other_word() {
        for (line, found, rest) in [
            ("-m 0 ls -s", "m=0", "ls -s"),
            ("-m0 -sV ls", "m=0 s V", "ls"),
            ("-sm0 -m -s x", "s m=0 m=-s", "x"),
            ("--membind=0,1 --membind 2 x", "m=0,1 m=2", "x"),
            ("--mem=a=b --show", "m=a=b s", ""),
            ("--membind= x", "m=", "x"),
            ("-s -- -m 0", "s", "-m 0"),
            ("- -s", "", "- -s"),
            ("--shm f", "S=f", ""),
        ] {
            assert_eq!(read(line), (found.to_owned(), rest.to_owned()), "{line}");
        }
    }

    #[test]
    fn abbreviations_fit_one_option_or_the_one_that_wins() {
        assert_eq!(read("--ver").0, "V");
        assert_eq!(read("--vers").0, "v");
        assert_eq!(
            read("--s").0,
            "option '--s' is ambiguous; possibilities: '--show' '--shm'"
        );
    }

    #[test]
    fn wrong_options_are_named() {
        for (line, message) in [
            ("-x", "invalid option -- 'x'"),
            ("-sx", "invalid option -- 'x'"),
            ("-m", "option requires an argument -- 'm'"),
            ("--foo=1", "unrecognized option '--foo=1'"),
            ("--mem", "option '--membind' requires an argument"),
            ("--show=1", "option '--show' doesn't allow an argument"),
        ] {
            assert_eq!(read(line).0, message, "{line}");
        }
    }
}
