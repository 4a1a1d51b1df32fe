//! The loop: looks, draws, waits for keys.

use std::io;
use std::thread;
use std::time::Duration;

use homenode_host::Clock;
use homenode_observe::{Observation, ProcessMaps, Row, ThreadSample};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::{Action, App, draw};

/// Where observations come from.
pub trait Source {
    /// The next observation; `None` at the end of a recording.
    ///
    /// # Errors
    ///
    /// Why there is none, for people.
    fn observe(&mut self) -> Result<Option<Observation>, String>;

    /// The mappings and the threads of a row's main process.
    fn detail(
        &mut self,
        row: &Row,
    ) -> (
        Result<ProcessMaps, String>,
        Result<Vec<ThreadSample>, String>,
    );

    /// Keeps the settings; says where.
    ///
    /// # Errors
    ///
    /// Why they could not be kept, for people.
    fn keep(&mut self, settings: &crate::Settings) -> Result<String, String>;
}

/// A terminal in its alternate screen, given back however this ends.
#[derive(Debug)]
pub struct Screen(ratatui::DefaultTerminal);

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// When standard output is none.
    pub fn open() -> io::Result<Self> {
        let screen = ratatui::try_init().map(Self)?;
        thread::spawn(end_with_the_terminal);
        Ok(screen)
    }
}

/// Waits until the terminal goes away, and ends the program then: crossterm would read from it for
/// ever, and SIGHUP comes only to those who belong to it and do not ignore it.
fn end_with_the_terminal() {
    let terminal = io::stdout();
    let gone = PollFlags::HUP | PollFlags::ERR;
    loop {
        // What is not asked for is told all the same: poll(2), Linux man-pages 6.9.
        let mut watched = [PollFd::new(&terminal, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) if watched[0].revents().intersects(gone) => break,
            Err(Errno::INTR) => {}
            // It cannot be watched.
            Ok(_) | Err(_) => return,
        }
    }
    let _ = kill_process(getpid(), Signal::TERM);
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the screen until the user has seen enough.
///
/// # Errors
///
/// When the terminal fails, or nothing can be observed any more.
pub fn run(
    screen: &mut Screen,
    app: &mut App,
    source: &mut dyn Source,
    clock: &dyn Clock,
    colour: bool,
) -> io::Result<()> {
    // Something to look at during the first look, which takes longest.
    screen.0.draw(|frame| draw(frame, app, colour))?;
    let mut next = Duration::ZERO;
    loop {
        if clock.now() >= next {
            observe(app, source)?;
            detail(app, source, clock);
            next = clock.now() + app.interval();
        }
        screen.0.draw(|frame| draw(frame, app, colour))?;
        let wait = if app.is_paused() {
            Duration::from_secs(3600)
        } else {
            next.saturating_sub(clock.now())
        };
        if !event::poll(wait)? {
            if app.is_paused() {
                next = clock.now() + app.interval();
            }
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        let interval = app.interval();
        match app.press(key) {
            Action::Quit => return Ok(()),
            Action::Observe => next = Duration::ZERO,
            Action::Write => match source.keep(app.settings()) {
                Ok(path) => app.say(format!("kept in {path}")),
                Err(why) => app.say(format!("not kept: {why}")),
            },
            Action::Draw => {
                if app.wants_detail().is_some() && app.maps.is_none() {
                    detail(app, source, clock);
                }
            }
        }
        if app.is_paused() {
            next = next.max(clock.now() + Duration::from_millis(1));
        } else if app.interval() != interval {
            next = next.min(clock.now() + app.interval());
        }
    }
}

fn observe(app: &mut App, source: &mut dyn Source) -> io::Result<()> {
    match source.observe() {
        Ok(Some(observation)) => app.take(observation),
        Ok(None) => app.say("the end of the recording".to_owned()),
        Err(why) => return Err(io::Error::other(why)),
    }
    Ok(())
}

fn detail(app: &mut App, source: &mut dyn Source, clock: &dyn Clock) {
    if let Some(row) = app.wants_detail().cloned() {
        let (maps, threads) = source.detail(&row);
        app.take_detail(maps, threads, clock.now());
    }
}
