//! `indexes=`: which number each object of a level has.

use std::collections::BTreeSet;

use super::SyntheticError;
use super::grammar::{Level, LevelKind, Place, level_kind, parse_number};

/// A numbering, not yet counted out.
#[derive(Clone, Debug)]
pub(super) enum Indexes {
    /// The numbers themselves.
    List(Vec<u32>),
    /// Step and count of each loop.
    Loops(Vec<(usize, usize)>),
    /// Loops over the objects of these types.
    Types(Vec<LevelKind>),
}

pub(super) fn parse_indexes(text: &str, place: &Place) -> Result<Indexes, SyntheticError> {
    let bad = || {
        place.error(
            "indexes= with a list such as 0,2,1,3, loops such as 2*2:1*2 or types such as \
             core:package",
        )
    };
    if text.contains('*') {
        let number = |text: &str| {
            let number = parse_number(text)?;
            usize::try_from(number).ok().filter(|&number| number > 0)
        };
        let loops = text.split(':').map(|one| {
            let (step, count) = one.split_once('*')?;
            Some((number(step)?, number(count)?))
        });
        return loops
            .collect::<Option<_>>()
            .map(Indexes::Loops)
            .ok_or_else(bad);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let list = text
            .split(',')
            .map(|one| u32::try_from(parse_number(one)?).ok());
        return list
            .collect::<Option<_>>()
            .map(Indexes::List)
            .ok_or_else(bad);
    }
    let types = text.split(':').map(level_kind);
    types
        .collect::<Option<_>>()
        .map(Indexes::Types)
        .ok_or_else(bad)
}

/// The numbers of `total` objects, each below `limit` and given once.
///
/// Loops name digits of an object's position, the first one the lowest: object *j* gets
/// Σ ((*j* / step) mod count) × the product of the counts before. The loop over neighbours may be
/// left out.
pub(super) fn numbers(
    indexes: Option<&Indexes>,
    total: usize,
    limit: u32,
    levels: &[Level],
    place: &Place,
) -> Result<Vec<u32>, SyntheticError> {
    let loops = match indexes {
        None => vec![(1, total)],
        Some(Indexes::Loops(loops)) => loops.clone(),
        Some(Indexes::Types(types)) => loops_over(types, total, levels, place)?,
        Some(Indexes::List(list)) => return expect_numbers(list.clone(), total, limit, place),
    };
    let loops = with_innermost(loops);
    let width = loops
        .iter()
        .try_fold(1usize, |width, &(_, count)| width.checked_mul(count));
    if width != Some(total) {
        return Err(place.error(format!(
            "loops whose counts multiply to {total}, the number of objects, such as {}*2:1*{}",
            total.div_ceil(2),
            total.div_ceil(2),
        )));
    }
    let numbers = (0..total).map(|position| {
        let mut number = 0;
        let mut weight = 1;
        for &(step, count) in &loops {
            number += position / step % count * weight;
            weight *= count;
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    });
    expect_numbers(numbers.collect(), total, limit, place)
}

fn loops_over(
    types: &[LevelKind],
    total: usize,
    levels: &[Level],
    place: &Place,
) -> Result<Vec<(usize, usize)>, SyntheticError> {
    // How many objects lie below one of the type, and how far in the type is.
    let mut steps: Vec<(usize, usize)> = Vec::new();
    for &wanted in types {
        let mut width = 1;
        let found = levels.iter().enumerate().find_map(|(depth, level)| {
            width *= level.count;
            let usable = level.kind == wanted && wanted != LevelKind::Pu;
            (usable && total.is_multiple_of(width)).then(|| (total / width, depth + 1))
        });
        // Without nodes in the description there is one, of the whole machine.
        let whole = (wanted == LevelKind::NumaNode).then_some((total, 0));
        match found.or(whole) {
            Some(step) if !steps.contains(&step) => steps.push(step),
            _ => {
                return Err(place
                    .error("types of items further out, each once, such as indexes=core:package"));
            }
        }
    }
    // Each loop counts up to the next one further out.
    let count = |&(step, depth): &(usize, usize)| {
        let outer = steps
            .iter()
            .filter(|&&(_, other)| other < depth)
            .map(|&(step, _)| step);
        outer.min().unwrap_or(total) / step
    };
    Ok(steps.iter().map(|one| (one.0, count(one))).collect())
}

fn with_innermost(mut loops: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    if let Some(&(smallest, _)) = loops.iter().min()
        && smallest > 1
    {
        loops.push((1, smallest));
    }
    loops
}

fn expect_numbers(
    numbers: Vec<u32>,
    total: usize,
    limit: u32,
    place: &Place,
) -> Result<Vec<u32>, SyntheticError> {
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    let in_range = distinct.last().is_some_and(|&highest| highest < limit);
    if numbers.len() != total || distinct.len() != total || !in_range {
        return Err(place.error(format!(
            "indexes= that give each of the {total} objects a number of its own below {limit}"
        )));
    }
    Ok(numbers)
}
