use crate::Topology;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct CheckError;
impl Topology {
    pub fn check(&self) -> Result<(), CheckError> {
        Ok(())
    }
}
