//! Which node the next batch goes to.

use std::collections::{BTreeMap, BTreeSet};

use homenode_host::{Buffer, Files};
use homenode_observe::parse_meminfo;
use homenode_units::{Bytes, NodeId};

use crate::plan::TargetNode;

/// How memory is spread over several target nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// In proportion to the memory that each had to give when the plan was made.
    #[default]
    Proportional,
    /// To the node nearest to where the memory is, while it has room; then to the next.
    Nearest,
}

#[derive(Debug)]
pub(crate) struct Targets {
    nodes: Vec<TargetNode>,
    spread: Spread,
    /// For each source, the targets from near to far.
    nearest: BTreeMap<NodeId, Vec<NodeId>>,
    given: BTreeMap<NodeId, Bytes>,
    /// Nodes that the kernel called full, for pages of this size.
    full: BTreeSet<(NodeId, usize)>,
}

impl Targets {
    pub(crate) fn new(
        nodes: Vec<TargetNode>,
        spread: Spread,
        nearest: BTreeMap<NodeId, Vec<NodeId>>,
    ) -> Self {
        Self {
            nodes,
            spread,
            nearest,
            given: BTreeMap::new(),
            full: BTreeSet::new(),
        }
    }

    /// Whether a batch must come from one node.
    pub(crate) fn one_source(&self) -> bool {
        self.spread == Spread::Nearest && self.nodes.len() > 1
    }

    /// The node for this much memory in pages of this size; `None` where no node has room.
    pub(crate) fn choose(
        &self,
        files: &(impl Files + ?Sized),
        source: NodeId,
        amount: Bytes,
        page_bytes: usize,
        base_bytes: usize,
    ) -> Option<NodeId> {
        let has_room = |target: &TargetNode| {
            !self.full.contains(&(target.node, page_bytes))
                && if page_bytes == base_bytes {
                    room(files, target) >= amount
                } else {
                    // The kernel tells by ENOMEM; the pool is set aside, so nobody starves.
                    true
                }
        };
        match self.spread {
            Spread::Nearest => self.nearest.get(&source).and_then(|order| {
                let node = |id: &NodeId| self.nodes.iter().find(|target| target.node == *id);
                order
                    .iter()
                    .find(|id| node(id).is_some_and(has_room))
                    .copied()
            }),
            Spread::Proportional => self
                .nodes
                .iter()
                .filter(|target| has_room(target))
                .min_by(|a, b| self.share_given(a).total_cmp(&self.share_given(b)))
                .map(|target| target.node),
        }
    }

    /// What it has got of what it could give; above 1 when memory came free meanwhile.
    fn share_given(&self, target: &TargetNode) -> f64 {
        let given = self.given.get(&target.node).copied().unwrap_or_default();
        given.share_of(target.room()).unwrap_or(f64::MAX)
    }

    pub(crate) fn gave(&mut self, node: NodeId, amount: Bytes) {
        let given = self.given.entry(node).or_default();
        *given = *given + amount;
    }

    pub(crate) fn is_full(&mut self, node: NodeId, page_bytes: usize) {
        self.full.insert((node, page_bytes));
    }
}

/// What the node can give now and keep its watermarks. Zero where it does not say.
fn room(files: &(impl Files + ?Sized), target: &TargetNode) -> Bytes {
    let mut buffer = Buffer::new();
    let path = format!("/sys/devices/system/node/node{}/meminfo", target.node);
    files
        .read(&path, &mut buffer)
        .ok()
        .and_then(|text| parse_meminfo(&String::from_utf8_lossy(text)).ok())
        .map_or(Bytes(0), |memory| {
            memory.obtainable().saturating_sub(target.margin)
        })
}
