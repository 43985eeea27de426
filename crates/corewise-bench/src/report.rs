//! The page (to come).
use crate::results::Results;
/// Page.
pub fn html(_: &Results) -> String {
    String::new()
}
/// Plot.
pub fn svg(_: &Results, _: &str) -> Option<String> {
    None
}
