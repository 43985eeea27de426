//! Which public types are `Send` and `Sync`, and which lifetimes may be shortened. Compiling is the
//! test; programs that must not compile are in `src/compile_fail.rs`.

use corewise_wire::memcached::{
    Admin, Codec, Crawl, DumpFormat, Limits, ReplyEncoder, ReplyWriter, StatsRequest, StatsWriter,
    Step,
};
use corewise_wire::{Announced, cphash, resp};
use static_assertions::assert_impl_all;

assert_impl_all!(Codec: Send, Sync);
assert_impl_all!(cphash::Codec: Send, Sync);
assert_impl_all!(cphash::KeyNumber: Send, Sync);
assert_impl_all!(DumpFormat: Send, Sync);
assert_impl_all!(Limits: Send, Sync);
assert_impl_all!(Admin<'static>: Send, Sync);
assert_impl_all!(Announced<'static>: Send, Sync);
assert_impl_all!(Crawl<'static>: Send, Sync);
assert_impl_all!(ReplyEncoder<'static>: Send, Sync);
assert_impl_all!(StatsRequest<'static>: Send, Sync);
assert_impl_all!(Step<'static>: Send, Sync);
assert_impl_all!(ReplyWriter<'static, 'static>: Send, Sync);
assert_impl_all!(StatsWriter<'static>: Send, Sync);
assert_impl_all!(resp::Codec: Send, Sync);
assert_impl_all!(resp::Limits: Send, Sync);
assert_impl_all!(resp::Malformed: Send, Sync);
assert_impl_all!(resp::Refusal: Send, Sync);
assert_impl_all!(resp::ReplyReader: Send, Sync);
assert_impl_all!(resp::Version: Send, Sync);
assert_impl_all!(resp::Args<'static>: Send, Sync);
assert_impl_all!(resp::Encoder<'static>: Send, Sync);
assert_impl_all!(resp::Parsed<'static>: Send, Sync);
assert_impl_all!(resp::Request<'static>: Send, Sync);
assert_impl_all!(resp::Value<'static>: Send, Sync);

type Borrowing<'a> = (
    Admin<'a>,
    Announced<'a>,
    Crawl<'a>,
    ReplyEncoder<'a>,
    StatsRequest<'a>,
    Step<'a>,
    ReplyWriter<'a, 'a>,
    StatsWriter<'a>,
    resp::Args<'a>,
    resp::Encoder<'a>,
    resp::Parsed<'a>,
    resp::Request<'a>,
    resp::Value<'a>,
);

#[allow(dead_code)]
fn lifetimes_may_be_shortened<'short>(long: Borrowing<'static>) -> Borrowing<'short> {
    long
}

#[test]
fn auto_traits_are_as_stated() {
    // The compiler checks the assertions above.
}
