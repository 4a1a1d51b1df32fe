//! `numastat` against the distribution's: on written machines, and on this one.

#[cfg(test)]
mod live;
#[cfg(test)]
mod machines;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod written;
