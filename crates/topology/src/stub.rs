use crate::*;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct CheckError;
impl Topology {
    pub fn check(&self) -> Result<(), CheckError> {
        Ok(())
    }
}
pub fn parse_srat(_: &[u8]) -> Result<Srat, String> {
    Err(String::new())
}
pub fn parse_slit(_: &[u8]) -> Result<Slit, String> {
    Err(String::new())
}
pub fn parse_hmat(_: &[u8]) -> Result<Hmat, String> {
    Err(String::new())
}
pub fn parse_memory_slot(_: &[u8]) -> Result<MemorySlot, String> {
    Err(String::new())
}
pub fn scrub_dmi(b: &[u8]) -> Vec<u8> {
    b.to_vec()
}
