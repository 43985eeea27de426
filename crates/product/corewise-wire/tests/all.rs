//! The codecs against expected bytes and model engines: one test program, since each links for
//! itself.

mod common;

mod admin;
mod apart;
mod binary;
mod binary_driver;
mod binary_protocol;
mod classic;
mod conversations;
mod cphash;
mod encode;
mod framing;
mod resp;
mod resp_driver;
