//! Checks, results and reports: one test program, since each links for itself.

mod common;

mod broken;
mod capabilities;
mod layers;
mod report;
mod report_page;
mod results;
mod show;
