//! Untrusted XML to a flat list of elements, within limits.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::HwlocXmlError;

/// hwloc's largest file in our corpus (256 CPUs, 64 nodes) has 188 kB.
pub(super) const INPUT_BYTES_MAX: usize = 64 << 20;
/// hwloc's synthetic machines have at most 128 levels; `info` and the like lie below.
pub(super) const DEPTH_MAX: usize = 256;
/// The highest limit that still reads the largest synthetic machine we can write ourselves.
pub(super) const ELEMENTS_MAX: usize = 1 << 20;
/// hwloc writes at most 15 to an element.
pub(super) const ATTRIBUTES_MAX: usize = 64;

/// An element with what is in it.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) tag: String,
    /// Line of the start tag, from 1.
    pub(super) line: usize,
    attributes: Vec<(String, String)>,
    /// Positions in the document; always higher than the element's own.
    pub(super) children: Vec<usize>,
    /// Text directly inside; kept only of the numbers of a matrix.
    pub(super) text: String,
}

/// The elements in document order; the root is the first.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) elements: Vec<Element>,
}

impl Element {
    pub(super) fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(name, _)| name == attribute)
            .map(|(_, value)| value.as_str())
    }

    /// The element as messages name it: `object type="Package"`.
    pub(super) fn name(&self) -> String {
        for attribute in ["type", "name"] {
            if let Some(value) = self.get(attribute) {
                return format!("{} {attribute}=\"{}\"", self.tag, excerpt(value));
            }
        }
        self.tag.clone()
    }
}

impl Document {
    pub(super) fn root(&self) -> &Element {
        &self.elements[0]
    }

    /// The children of an element that have this tag.
    pub(super) fn children<'a>(
        &'a self,
        of: &'a Element,
        tag: &'a str,
    ) -> impl Iterator<Item = &'a Element> {
        of.children
            .iter()
            .map(|&child| &self.elements[child])
            .filter(move |child| child.tag == tag)
    }
}

/// Reads the elements of a document.
///
/// Nothing is expanded: declarations of entities are refused before anything can refer to them.
pub(super) fn parse_document(input: &[u8]) -> Result<Document, HwlocXmlError> {
    if input.len() > INPUT_BYTES_MAX {
        return Err(HwlocXmlError::TooMuch {
            what: "bytes",
            limit: INPUT_BYTES_MAX,
        });
    }
    let text = std::str::from_utf8(input).map_err(|error| HwlocXmlError::NotUtf8 {
        position: error.valid_up_to(),
    })?;
    let mut parser = Parser {
        lines: LineCounter::new(text),
        elements: Vec::new(),
        open: Vec::new(),
    };
    let mut reader = Reader::from_str(text);
    loop {
        let line = parser.lines.line_at(reader.buffer_position());
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(event) => parser.take(&event, line)?,
            Err(error) => {
                return Err(HwlocXmlError::Syntax {
                    line: parser.lines.line_at(reader.error_position()),
                    reason: error.to_string(),
                });
            }
        }
    }
    if let Some(&open) = parser.open.last() {
        let name = parser.elements[open].name();
        return Err(HwlocXmlError::Cut { open: name });
    }
    if parser.elements.is_empty() {
        return Err(HwlocXmlError::NotTopology {
            found: "no element".to_owned(),
        });
    }
    Ok(Document {
        elements: parser.elements,
    })
}

struct Parser<'text> {
    lines: LineCounter<'text>,
    elements: Vec<Element>,
    /// Positions of the elements that are not closed yet, outermost first.
    open: Vec<usize>,
}

impl Parser<'_> {
    fn take(&mut self, event: &Event<'_>, line: usize) -> Result<(), HwlocXmlError> {
        match event {
            Event::Start(start) => {
                let position = self.add(start, line)?;
                self.open.push(position);
                if self.open.len() > DEPTH_MAX {
                    return Err(HwlocXmlError::TooDeep { line });
                }
                Ok(())
            }
            Event::Empty(start) => self.add(start, line).map(|_| ()),
            Event::End(_) => {
                self.open.pop();
                Ok(())
            }
            Event::DocType(declaration) => {
                // An internal subset declares entities, out of which XML bombs are made. hwloc
                // never writes one.
                if declaration.contains('[') {
                    return Err(HwlocXmlError::EntityDeclarations { line });
                }
                Ok(())
            }
            Event::Text(text) => {
                if let Some(&open) = self.open.last() {
                    let element = &mut self.elements[open];
                    if matches!(element.tag.as_str(), "indexes" | "u64values") {
                        element.text.push_str(text);
                    }
                }
                Ok(())
            }
            // hwloc itself refuses comments; reading past them harms nobody.
            Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::CData(_)
            | Event::GeneralRef(_)
            | Event::Eof => Ok(()),
        }
    }

    fn add(&mut self, start: &BytesStart<'_>, line: usize) -> Result<usize, HwlocXmlError> {
        if self.elements.len() >= ELEMENTS_MAX {
            return Err(HwlocXmlError::TooMuch {
                what: "elements",
                limit: ELEMENTS_MAX,
            });
        }
        let position = self.elements.len();
        match self.open.last() {
            Some(&parent) => self.elements[parent].children.push(position),
            None if position > 0 => {
                return Err(HwlocXmlError::Syntax {
                    line,
                    reason: format!("a second root element `{}`", excerpt(start.name().0)),
                });
            }
            None => {}
        }
        self.elements.push(Element {
            tag: start.name().0.to_owned(),
            line,
            attributes: attributes(start, line)?,
            children: Vec::new(),
            text: String::new(),
        });
        Ok(position)
    }
}

fn attributes(start: &BytesStart<'_>, line: usize) -> Result<Vec<(String, String)>, HwlocXmlError> {
    let syntax = |reason: String| HwlocXmlError::Syntax { line, reason };
    let mut attributes: Vec<(String, String)> = Vec::new();
    // The checks of quick-xml compare each attribute with all before it, without a limit.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| syntax(error.to_string()))?;
        let name = attribute.key.0;
        if attributes.iter().any(|(earlier, _)| earlier == name) {
            return Err(syntax(format!(
                "attribute `{}` stands twice",
                excerpt(name)
            )));
        }
        if attributes.len() >= ATTRIBUTES_MAX {
            return Err(HwlocXmlError::TooMuch {
                what: "attributes in one element",
                limit: ATTRIBUTES_MAX,
            });
        }
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| syntax(error.to_string()))?;
        attributes.push((name.to_owned(), value.into_owned()));
    }
    Ok(attributes)
}

/// What of a bad value is worth showing in a message.
pub(super) fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Counts lines up to positions that only grow, so that all calls together read the text once.
struct LineCounter<'text> {
    text: &'text [u8],
    counted_to: usize,
    line: usize,
}

impl<'text> LineCounter<'text> {
    fn new(text: &'text str) -> Self {
        Self {
            text: text.as_bytes(),
            counted_to: 0,
            line: 1,
        }
    }

    fn line_at(&mut self, position: u64) -> usize {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let position = position.min(self.text.len());
        if let Some(passed) = self.text.get(self.counted_to..position) {
            self.line += passed.iter().filter(|&&byte| byte == b'\n').count();
            self.counted_to = position;
        }
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse_document(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn elements_keep_their_attributes_children_and_numbers() {
        let document = parse_document(
            b"<topology version='2.0'>\n<object name='a&amp;b&#10;c'/>\n\
              <indexes length='4'>0 1 </indexes></topology>",
        )
        .unwrap();
        let root = document.root();
        assert_eq!(root.get("version"), Some("2.0"));
        let object = document.children(root, "object").next().unwrap();
        assert_eq!(object.get("name"), Some("a&b\nc"));
        assert_eq!(object.line, 2);
        let indexes = document.children(root, "indexes").next().unwrap();
        assert_eq!(indexes.text, "0 1 ");
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_line() {
        for (text, message) in [
            ("", "expected <topology>, found no element"),
            ("<a>\n<b>", "cut off: b is not closed"),
            (
                "<a/><b/>",
                "line 1: not well-formed XML: a second root element `b`",
            ),
            (
                "<a>\n<b x='1' x='2'/></a>",
                "line 2: not well-formed XML: attribute `x` stands twice",
            ),
            (
                "<!DOCTYPE a [<!ENTITY b 'bb'>]><a/>",
                "line 1: a document type with declarations of its own is refused; hwloc writes \
                 none",
            ),
        ] {
            assert_eq!(refusal(text), message, "{text}");
        }
        assert!(refusal("<a>\n\n</b>").starts_with("line 3: not well-formed XML: "));
        assert!(refusal("<a b='&c;'/>").contains("not well-formed XML"));
        assert_eq!(
            parse_document(b"<a>\xff</a>").unwrap_err(),
            HwlocXmlError::NotUtf8 { position: 3 }
        );
    }

    #[test]
    fn nesting_elements_and_attributes_have_limits() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        assert_eq!(
            parse_document(deep.as_bytes()).unwrap_err(),
            HwlocXmlError::TooDeep { line: 1 }
        );
        let wide = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        assert!(refusal(&wide).starts_with("more than 1048576 elements"));
        let many: String = (0..=ATTRIBUTES_MAX).map(|i| format!(" b{i}=''")).collect();
        assert!(refusal(&format!("<a{many}/>")).contains("attributes in one element"));
    }
}
