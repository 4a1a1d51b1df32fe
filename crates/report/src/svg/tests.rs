//! Drawings are well-formed, boxes do not overlap, words stay inside.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::sample;

fn machines() -> Vec<(&'static str, Topology, Verdict)> {
    vec![
        ("single", sample::single(), sample::uniform()),
        ("two_nodes", sample::two_nodes(), sample::plain(2)),
        ("ring4", sample::ring4(), sample::plain(4)),
        ("snc_cpuless", sample::snc_cpuless(), sample::snc()),
        ("sparse", sample::sparse(), sample::l3_as_numa()),
        ("uneven", sample::uneven(), sample::plain(2)),
        ("crowded", sample::crowded(), sample::plain(2)),
        ("memoryless", sample::memoryless(), sample::plain(2)),
        ("devices", sample::devices(), sample::plain(2)),
        ("big", sample::big(), sample::plain(64)),
        ("gpus", sample::gpus(), sample::plain(2)),
        (
            "nothing_but_cpus",
            sample::nothing_but_cpus(),
            sample::plain(2),
        ),
    ]
}

/// Writes the drawings where a person can look at them: `HOMENODE_DRAWINGS=DIR cargo test`.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test that writes for a person, when asked to"
)]
fn drawings_for_people() {
    let Ok(folder) = std::env::var("HOMENODE_DRAWINGS") else {
        return;
    };
    for (name, topology, verdict) in machines() {
        let path = format!("{folder}/{name}.svg");
        std::fs::write(path, topology_svg(&topology, &verdict)).unwrap();
    }
}

/// The number in an attribute.
fn number(element: &quick_xml::events::BytesStart<'_>, name: &str) -> i32 {
    let text = attribute(element, name).unwrap();
    text.parse().unwrap()
}

fn attribute(element: &quick_xml::events::BytesStart<'_>, name: &str) -> Option<String> {
    let value = element.try_get_attribute(name).unwrap()?;
    Some(value.value.into_owned())
}

/// A text with the innermost box that it must stay in.
#[derive(Debug)]
struct Word {
    text: String,
    left: i32,
    right: i32,
    frame: Option<Rect>,
}

/// What a drawing consists of, read back from its text.
#[derive(Debug, Default)]
struct Drawing {
    ids: Vec<String>,
    words: Vec<Word>,
    width: i32,
}

/// Pixels that a text takes at most; measured here apart from the pen, which must not judge itself.
fn width_of(class: &str, text: &str) -> i32 {
    // Hundredths of a pixel: 61 % of the size for monospaced letters, 70 % for the headline's.
    let letter = match class.split(' ').next() {
        Some("small") => 549,
        Some("head") => 793,
        Some("headline") => 1120,
        _ => 671,
    };
    i32::try_from(text.chars().count()).unwrap() * letter / 100
}

/// Reads a drawing; panics where it is not well-formed.
fn read(svg: &str) -> Drawing {
    let mut reader = Reader::from_str(svg);
    let mut drawing = Drawing::default();
    let mut frames: Vec<Option<Rect>> = Vec::new();
    let mut open: Option<(String, i32)> = None;
    loop {
        let event = reader.read_event().unwrap();
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                drawing.ids.extend(attribute(element, "id"));
                match element.name().as_ref() {
                    "svg" => drawing.width = number(element, "width"),
                    "g" => frames.push(None),
                    "rect" if attribute(element, "class").as_deref() == Some("body") => {
                        let side = |name| number(element, name);
                        let rect = Rect::new(side("x"), side("y"), side("width"), side("height"));
                        *frames.last_mut().unwrap() = Some(rect);
                    }
                    "text" => {
                        let class = attribute(element, "class").unwrap();
                        open = Some((class, number(element, "x")));
                    }
                    _ => {}
                }
            }
            Event::Text(text) => {
                if let Some((class, x)) = open.take() {
                    let text = text.to_string();
                    let width = width_of(&class, &text);
                    let left = match () {
                        () if class.contains("end") => x - width,
                        () if class.contains("middle") => x - width / 2,
                        () => x,
                    };
                    let frame = frames.iter().rev().find_map(|frame| *frame);
                    let right = left + width;
                    drawing.words.push(Word {
                        text,
                        left,
                        right,
                        frame,
                    });
                }
            }
            Event::End(element) if element.name().as_ref() == "g" => {
                frames.pop();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(frames.is_empty());
    drawing
}

#[test]
fn drawings_are_well_formed_and_words_stay_inside() {
    for (name, topology, verdict) in machines() {
        let drawing = read(&topology_svg(&topology, &verdict));
        let mut ids = drawing.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), drawing.ids.len(), "{name}: {:?}", drawing.ids);
        assert!(drawing.words.len() > 5, "{name}");
        for word in &drawing.words {
            assert!(
                word.left >= 0 && word.right <= drawing.width,
                "{name}: {word:?}"
            );
            if let Some(frame) = word.frame {
                let inside = word.left >= frame.x && word.right <= frame.right();
                assert!(inside, "{name}: `{}` {word:?}", word.text);
            }
        }
    }
}

#[test]
fn every_node_is_drawn_once() {
    for (name, topology, verdict) in machines() {
        let drawing = read(&topology_svg(&topology, &verdict));
        if name == "big" {
            assert!(drawing.ids.contains(&"nodes-0".to_owned()));
            continue;
        }
        for node in &topology.nodes {
            let id = format!("node-{}", node.id);
            assert_eq!(
                drawing.ids.iter().filter(|&known| *known == id).count(),
                1,
                "{name}"
            );
        }
    }
}

#[test]
fn boxes_do_not_overlap_and_lie_on_the_paper() {
    for (name, topology, _) in machines() {
        let layout = Layout::new(&topology);
        for (index, a) in layout.boxes.iter().enumerate() {
            let (a, id) = (a.rect, &a.content.id);
            assert!(a.x >= 0 && a.y >= 0, "{name}: {id}");
            assert!(
                a.right() <= layout.width && a.bottom() <= layout.height,
                "{name}: {id}"
            );
            for b in &layout.boxes[index + 1..] {
                let (b, other) = (b.rect, &b.content.id);
                let apart = a.right() <= b.x || b.right() <= a.x;
                let apart = apart || a.bottom() <= b.y || b.bottom() <= a.y;
                assert!(apart, "{name}: {id} and {other}");
            }
        }
    }
}

#[test]
fn no_line_runs_behind_a_box() {
    for (name, topology, _) in machines() {
        let layout = Layout::new(&topology);
        for way in layout.ways() {
            for step in 1..100 {
                let (x, y) = way.at(step);
                let hidden = layout.boxes.iter().find(|placed| {
                    let rect = placed.rect;
                    (rect.x + 1..rect.right()).contains(&x)
                        && (rect.y + 1..rect.bottom()).contains(&y)
                });
                assert!(
                    hidden.is_none(),
                    "{name}: {way:?} behind {:?}",
                    hidden.map(|b| b.rect)
                );
            }
        }
    }
}

#[test]
fn names_of_a_foreign_machine_cannot_break_out() {
    let (mut topology, mut verdict) = (sample::devices(), sample::plain(2));
    let hostile = "</text><script>alert(1)</script>&\u{1}\"".to_owned();
    verdict.headline.clone_from(&hostile);
    topology.processor.model_name = homenode_units::Reading::Known(hostile.clone());
    if let homenode_units::Reading::Known(devices) = &mut topology.devices {
        devices[0].names = vec![hostile.clone()];
        devices[1].address = hostile;
    }
    let svg = topology_svg(&topology, &verdict);
    read(&svg);
    assert!(!svg.contains("<script"), "{svg}");
}

#[test]
fn the_same_share_is_used_as_in_the_text() {
    let svg = topology_svg(&sample::two_nodes(), &sample::plain(2));
    // T32: 13.6 % and 21.6 %.
    assert!(svg.contains("13.6 % used") && svg.contains("21.6 % used"));
}

#[test]
fn four_packages_stand_so_that_diagonals_are_long() {
    let topology = sample::ring4();
    let layout = Layout::new(&topology);
    let place = |id: &str| {
        layout
            .boxes
            .iter()
            .find(|b| b.content.id == id)
            .unwrap()
            .rect
    };
    let (a, far) = (place("node-0"), place("node-2"));
    assert!(a.x != far.x && a.y != far.y, "{a:?} {far:?}");
}

#[test]
fn uneven_distances_are_each_on_their_line() {
    let svg = topology_svg(&sample::uneven(), &sample::plain(2));
    for (from, to, distance) in [(0, 2, 32), (0, 3, 33), (1, 2, 25), (1, 3, 32)] {
        let line =
            format!("data-from=\"{from}\" data-to=\"{to}\"><title>{from} to {to}: {distance}<");
        assert!(
            svg.contains(&format!("<g class=\"link wide\" {line}")),
            "{svg}"
        );
    }
    assert!(svg.contains("package 0 · 16 between its nodes"));
}

#[test]
fn the_largest_drawing_stays_small() {
    let svg = topology_svg(&sample::big(), &sample::plain(64));
    assert!(svg.len() < 100_000, "{}", svg.len());
}

#[test]
fn long_lists_are_cut_after_a_number_and_many_devices_are_counted() {
    let svg = topology_svg(&sample::crowded(), &sample::plain(2));
    assert!(svg.contains(">CPUs 0,3,5-7,9,14,17-19,26,…<"), "{svg}");
    assert!(svg.contains(">and 2 more<"), "{svg}");
    assert!(svg.contains("id=\"devices-2\""), "{svg}");
}
