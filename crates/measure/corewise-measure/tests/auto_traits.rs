//! Which public types are `Send` and `Sync`: all of them, and none has a
//! lifetime. Compiling is the test.

use corewise_measure::cpu::RtmSupport;
use corewise_measure::draw::Scramble;
use corewise_measure::machine::{CpuTimes, Machine, Memory};
use corewise_measure::stats::{Ratio, SpeedVerdict, Spread};
use corewise_measure::ticks::Ticks;
use corewise_measure::trace::{
    BadTraceModel, RequestKind, Trace, TraceConfig, TraceModel, TraceRequest,
};
use static_assertions::assert_impl_all;

assert_impl_all!(RtmSupport: Send, Sync);
assert_impl_all!(Scramble: Send, Sync);
assert_impl_all!(CpuTimes: Send, Sync);
assert_impl_all!(Machine: Send, Sync);
assert_impl_all!(Memory: Send, Sync);
assert_impl_all!(Ratio: Send, Sync);
assert_impl_all!(Spread: Send, Sync);
assert_impl_all!(SpeedVerdict: Send, Sync);
assert_impl_all!(Ticks: Send, Sync);
assert_impl_all!(BadTraceModel: Send, Sync);
assert_impl_all!(RequestKind: Send, Sync);
assert_impl_all!(TraceModel: Send, Sync);
assert_impl_all!(TraceRequest: Send, Sync);
assert_impl_all!(Trace: Send, Sync);
assert_impl_all!(TraceConfig: Send, Sync);

#[test]
fn auto_traits_are_as_stated() {
    // Stated above, for the compiler.
}
