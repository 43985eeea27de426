//! The load generator against honest servers and servers that lie: one test program, since each
//! links for itself.

mod common;

mod lies;
mod oracle;
mod replay;
