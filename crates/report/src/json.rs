//! A machine as JSON, for programs.

use homenode_topology::{Topology, Verdict};
use serde::Serialize;

/// The name and major version of the form; fields are only ever added under it.
pub const TOPOLOGY_SCHEMA: &str = "homenode.topology/1";

#[derive(Serialize)]
struct Envelope<'a> {
    schema: &'static str,
    version: &'static str,
    topology: &'a Topology,
    verdict: &'a Verdict,
}

/// Writes a machine and its verdict as indented JSON; docs/json.md documents every field.
///
/// Sizes are in bytes, times in nanoseconds, bandwidths in bytes per second; sets of CPUs and
/// nodes are the kernel's lists (`0-3,8`); what is not known is `{"absent": "why"}`.
#[must_use]
#[expect(
    clippy::missing_panics_doc,
    reason = "serde_json fails on map keys that are no strings and on Serialize impls that fail; \
              the model has neither"
)]
pub fn topology_json(topology: &Topology, verdict: &Verdict) -> String {
    let envelope = Envelope {
        schema: TOPOLOGY_SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        topology,
        verdict,
    };
    let mut text = serde_json::to_string_pretty(&envelope).expect("the model has only string keys");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use homenode_topology::{
        Access, CoreKind, Hmat, HmatMatrix, HmatMetric, HmatSideCache, HugePagePool, MemorySlot,
        SideCache, Slit, Srat, SratDomain, Tier, Warning,
    };
    use homenode_units::{Bytes, BytesPerSecond, Nanoseconds, NodeId, Reading};
    use serde_json::Value;

    use super::*;
    use crate::sample;

    #[test]
    fn the_envelope_names_schema_and_version() {
        let text = topology_json(&sample::two_nodes(), &sample::plain(2));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "homenode.topology/1");
        assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(value["topology"]["nodes"][0]["cpus"], "0-11,24-35");
        assert_eq!(
            value["topology"]["nodes"][0]["memory_total"],
            130_669u64 << 20
        );
        assert_eq!(
            value["topology"]["distances"]["nodes"],
            serde_json::json!([0, 1])
        );
        assert_eq!(value["topology"]["distances"]["rows"][0][1], 21);
        assert_eq!(value["verdict"]["mode"]["name"], "plain");
    }

    #[test]
    fn absence_has_its_reason() {
        let text = topology_json(&sample::nothing_but_cpus(), &sample::snc());
        let value: Value = serde_json::from_str(&text).unwrap();
        let absent = serde_json::json!({"absent": "no distance file"});
        assert_eq!(value["topology"]["distances"], absent);
        assert_eq!(value["verdict"]["mode"]["nodes_per_package"], 2);
    }

    /// A machine with something in every list, so that every field shows.
    fn complete() -> Topology {
        let mut topology = sample::devices();
        topology.allowed = sample::contained().allowed;
        topology.problems = sample::contained().problems;
        topology.caches = sample::single().caches;
        topology.core_kinds.push(CoreKind {
            cpus: sample::cpus("0-3"),
            name: "capacity 1024".to_owned(),
        });
        let node = &mut topology.nodes[0];
        node.huge_pages.push(HugePagePool {
            page_size: Bytes(2 << 20),
            total_pages: 4,
            free_pages: 1,
        });
        node.side_caches.push(SideCache {
            level: 1,
            size: Reading::Known(Bytes(1 << 30)),
            line_size: Some(Bytes(64)),
        });
        node.access.push(Access {
            class: 1,
            initiators: [NodeId(0)].into_iter().collect(),
            read_latency: Some(Nanoseconds(110.0)),
            write_latency: None,
            read_bandwidth: Some(BytesPerSecond(2e10)),
            write_bandwidth: None,
        });
        topology.tiers = Reading::Known(vec![Tier {
            id: 4,
            nodes: [NodeId(0)].into_iter().collect(),
        }]);
        topology.memory_slots = Reading::Known(vec![MemorySlot {
            locator: "P1-DIMMA1".to_owned(),
            bank: "P0".to_owned(),
            size: Reading::Known(None),
            speed_mts: Some(2666),
        }]);
        topology.firmware.srat = Reading::Known(Srat {
            domains: vec![SratDomain::default()],
        });
        topology.firmware.slit = Reading::Known(Slit {
            rows: vec![vec![10]],
        });
        topology.firmware.hmat = Reading::Known(Hmat {
            matrices: vec![HmatMatrix {
                metric: HmatMetric::ReadLatency,
                hierarchy: 0,
                initiators: vec![0],
                targets: vec![0],
                values: vec![vec![Some(110.0)]],
            }],
            side_caches: vec![HmatSideCache {
                domain: 0,
                size: Bytes(1),
                level: 1,
                line_size: Bytes(64),
            }],
        });
        topology
    }

    /// Paths of all fields: `topology.nodes[].cpus`.
    fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) if fields.keys().ne(["absent"]) => {
                for (name, value) in fields {
                    let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
                    paths(value, &path, found);
                    found.insert(path);
                }
            }
            Value::Array(items) => {
                for item in items {
                    paths(item, &format!("{path}[]"), found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_field_is_documented_and_every_documented_field_exists() {
        let documents = include_str!("../../../docs/json.md");
        let mut verdict = sample::snc();
        verdict.undecided = sample::l3_as_numa().undecided;
        verdict.warnings.push(Warning {
            subject: String::new(),
            message: String::new(),
            advice: None,
        });
        let value: Value = serde_json::from_str(&topology_json(&complete(), &verdict)).unwrap();
        let mut written = BTreeSet::new();
        paths(&value, "", &mut written);
        let documented: BTreeSet<String> = documents
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .map(str::to_owned)
            .collect();
        let missing: Vec<_> = written.difference(&documented).collect();
        assert!(missing.is_empty(), "not in docs/json.md: {missing:#?}");
        let stale: Vec<_> = documented.difference(&written).collect();
        assert!(stale.is_empty(), "only in docs/json.md: {stale:#?}");
    }
}
