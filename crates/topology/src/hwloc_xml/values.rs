//! Attribute values as numbers and sets, or an error that names element and attribute.

use homenode_units::{CpuSet, Id, IdSet, NodeSet};

use super::HwlocXmlError;
use super::document::{Element, excerpt};
use crate::limits::{CPU_LIMIT, NODE_LIMIT};

/// A mask of [`CPU_LIMIT`] CPUs has 2,048 words of 11 characters.
const SET_CHARS_MAX: usize = 32 << 10;

impl Element {
    pub(super) fn bad_value(
        &self,
        attribute: &str,
        expected: impl Into<String>,
        found: &str,
    ) -> HwlocXmlError {
        HwlocXmlError::Value {
            line: self.line,
            element: self.name(),
            attribute: attribute.to_owned(),
            expected: expected.into(),
            found: excerpt(found),
        }
    }

    pub(super) fn required(
        &self,
        attribute: &'static str,
        expected: &'static str,
    ) -> Result<&str, HwlocXmlError> {
        self.get(attribute).ok_or_else(|| HwlocXmlError::Missing {
            line: self.line,
            element: self.name(),
            attribute,
            expected,
        })
    }

    /// A number; `None` when the attribute is not there.
    pub(super) fn number<T: std::str::FromStr>(
        &self,
        attribute: &str,
        expected: &str,
    ) -> Result<Option<T>, HwlocXmlError> {
        let Some(text) = self.get(attribute) else {
            return Ok(None);
        };
        text.trim()
            .parse()
            .map(Some)
            .map_err(|_| self.bad_value(attribute, expected, text))
    }

    pub(super) fn required_number<T: std::str::FromStr>(
        &self,
        attribute: &'static str,
        expected: &'static str,
    ) -> Result<T, HwlocXmlError> {
        self.required(attribute, expected)?;
        self.number(attribute, expected)?
            .ok_or_else(|| HwlocXmlError::Missing {
                line: self.line,
                element: self.name(),
                attribute,
                expected,
            })
    }

    /// A set of CPUs in hwloc's notation; `None` when the attribute is not there.
    pub(super) fn cpus(&self, attribute: &str) -> Result<Option<CpuSet>, HwlocXmlError> {
        self.set(attribute, CPU_LIMIT)
    }

    /// A set of nodes in hwloc's notation; `None` when the attribute is not there.
    pub(super) fn nodes(&self, attribute: &str) -> Result<Option<NodeSet>, HwlocXmlError> {
        self.set(attribute, NODE_LIMIT)
    }

    fn set<T: Id>(&self, attribute: &str, limit: u32) -> Result<Option<IdSet<T>>, HwlocXmlError> {
        let Some(text) = self.get(attribute) else {
            return Ok(None);
        };
        let expected = || {
            format!(
                "a mask of {} numbers below {limit}, such as 0x0000000f",
                T::NOUN
            )
        };
        let bad = || self.bad_value(attribute, expected(), text);
        // `0xf...f` is every number from there on: no set of any machine.
        if text.len() > SET_CHARS_MAX || text.contains("...") {
            return Err(bad());
        }
        let set = IdSet::<T>::parse_mask(text).map_err(|_| bad())?;
        if set.highest().is_some_and(|id| id.number() >= limit) {
            return Err(bad());
        }
        Ok(Some(set))
    }
}
