//! `numastat` against the distribution's: on written machines, and on this one.

mod live;
mod machines;
mod upstream;
mod written;
