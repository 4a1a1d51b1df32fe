//! XML in the form that hwloc's own parser reads.
//!
//! That parser (hwloc's topology-xml-nolibxml.c, used where libxml2 is missing) knows no comments,
//! no `&apos;`, and strings of printable ASCII only. quick-xml escapes `'` as `&apos;`, so values
//! reach its writer escaped already.

use std::borrow::Cow;

use homenode_topology::hwloc_info;
use homenode_units::{Id, IdSet};
use quick_xml::events::attributes::Attribute;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use quick_xml::name::QName;
use quick_xml::writer::Writer;

/// An element on its way out.
#[derive(Debug)]
pub(super) struct Element {
    tag: &'static str,
    /// In the order of hwloc's own files.
    attributes: Vec<(&'static str, String)>,
    children: Vec<Element>,
    text: Option<String>,
}

impl Element {
    pub(super) fn new(tag: &'static str) -> Self {
        Self {
            tag,
            attributes: Vec::new(),
            children: Vec::new(),
            text: None,
        }
    }

    pub(super) fn set(&mut self, attribute: &'static str, value: impl Into<String>) {
        self.attributes.push((attribute, value.into()));
    }

    pub(super) fn get(&self, attribute: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(name, _)| *name == attribute);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn set_text(&mut self, text: String) {
        self.text = Some(text);
    }

    pub(super) fn add(&mut self, child: Self) {
        self.children.push(child);
    }

    pub(super) fn extend(&mut self, children: impl IntoIterator<Item = Self>) {
        self.children.extend(children);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub(super) fn add_info(&mut self, name: &'static str, value: &str) {
        self.children.push(info(name, value));
    }

    /// Adds an `info` before all other children, since hwloc wants them before objects.
    pub(super) fn add_info_first(&mut self, name: &'static str, value: &str) {
        self.children.insert(0, info(name, value));
    }

    pub(super) fn add_absence(&mut self, name: &'static str, why: &str) {
        self.add_info(name, &format!("{}{why}", hwloc_info::ABSENT));
    }
}

fn info(name: &'static str, value: &str) -> Element {
    let mut info = Element::new("info");
    info.set("name", name);
    info.set("value", value);
    info
}

/// A set in hwloc's notation: 32-bit words with `0x`, most significant first, zero words empty but
/// for a last one.
pub(super) fn mask<T: Id>(set: &IdSet<T>) -> String {
    if set.is_empty() {
        return "0x0".to_owned();
    }
    let last = set.words_u32().count() - 1;
    let words = set
        .words_u32()
        .rev()
        .enumerate()
        .map(|(position, word)| match word {
            0 if position == last => "0x0".to_owned(),
            0 => String::new(),
            _ => format!("0x{word:08x}"),
        });
    words.collect::<Vec<_>>().join(",")
}

/// The whole file.
pub(super) fn document(root: &Element) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    put(
        &mut writer,
        Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)),
    );
    let doctype = r#"topology SYSTEM "hwloc2.dtd""#;
    put(
        &mut writer,
        Event::DocType(BytesText::from_escaped(doctype)),
    );
    write(&mut writer, root);
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("escape() leaves ASCII")
}

fn write(writer: &mut Writer<Vec<u8>>, element: &Element) {
    let attributes = element.attributes.iter().map(|(name, value)| Attribute {
        key: QName(name),
        value: Cow::Owned(escape(value)),
    });
    let start = BytesStart::new(element.tag).with_attributes(attributes);
    if element.children.is_empty() && element.text.is_none() {
        put(writer, Event::Empty(start));
        return;
    }
    put(writer, Event::Start(start));
    if let Some(text) = &element.text {
        put(writer, Event::Text(BytesText::new(text)));
    }
    for child in &element.children {
        write(writer, child);
    }
    put(writer, Event::End(BytesEnd::new(element.tag)));
}

fn put(writer: &mut Writer<Vec<u8>>, event: Event<'_>) {
    writer
        .write_event(event)
        .expect("a vector takes everything that is written to it");
}

/// Escapes an attribute value; characters that hwloc would refuse become `?`.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' => escaped.push_str("&#9;"),
            '\n' => escaped.push_str("&#10;"),
            '\r' => escaped.push_str("&#13;"),
            ' '..='~' => escaped.push(character),
            _ => escaped.push('?'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use homenode_units::CpuSet;

    use super::*;

    #[test]
    fn masks_as_hwloc_writes_them() {
        for (list, text) in [
            ("", "0x0"),
            ("0-7", "0x000000ff"),
            ("100", "0x00000010,,,0x0"),
            ("0,64", "0x00000001,,0x00000001"),
            ("32-33", "0x00000003,0x0"),
        ] {
            let set = CpuSet::parse_list(list).unwrap();
            assert_eq!(mask(&set), text);
            assert_eq!(CpuSet::parse_mask(text), Ok(set));
        }
    }

    #[test]
    fn values_use_the_entities_that_hwloc_knows() {
        assert_eq!(
            escape("a'b\"<&>\t\n\r"),
            "a'b&quot;&lt;&amp;&gt;&#9;&#10;&#13;"
        );
        assert_eq!(escape("Prozessor für 1 €\u{7f}"), "Prozessor f?r 1 ??");
    }

    #[test]
    fn a_document_has_its_declarations_on_lines_of_their_own() {
        let mut root = Element::new("topology");
        root.set("version", "2.0");
        let mut numbers = Element::new("indexes");
        numbers.set_text("0 1 ".to_owned());
        root.add(numbers);
        root.add_info("A", "b");
        assert_eq!(
            document(&root),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
             <topology version=\"2.0\">\n  <indexes>0 1 </indexes>\n  \
             <info name=\"A\" value=\"b\"/>\n</topology>\n"
        );
    }
}
