//! Comparison (to come).
use crate::results::Results;
/// A comparison.
#[derive(Debug)]
pub struct Comparison;
/// Compares.
pub fn compare(_: &Results, _: &Results) -> Comparison {
    Comparison
}
impl Comparison {
    /// Text.
    pub fn text(&self) -> String {
        String::new()
    }
    /// JSON.
    pub fn json(&self) -> String {
        String::new()
    }
    /// Whether.
    pub fn fails_on_slower(&self) -> bool {
        false
    }
}
