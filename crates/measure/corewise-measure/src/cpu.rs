//! Facts that the processor reports (CPUID) and no file provides.

/// Whether the timestamp counter ticks at one rate in every power state. Always true on aarch64,
/// whose architecture requires it of its counter.
pub fn has_invariant_counter() -> bool {
    // CPUID 8000_0007h, EDX bit 8.
    cfg!(target_arch = "aarch64") || leaf(0x8000_0007).is_some_and(|[_, _, _, edx]| bit(edx, 8))
}

/// Whether a hypervisor reports its presence; `false` on architectures other than x86-64.
pub fn has_hypervisor() -> bool {
    // CPUID 1, ECX bit 31.
    leaf(1).is_some_and(|[_, _, ecx, _]| bit(ecx, 31))
}

/// Whether transactional memory can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RtmSupport {
    /// The processor has no transactional memory.
    Absent,
    /// The instructions exist, and every transaction aborts (microcode).
    AlwaysAborts,
    /// The processor reports transactional memory. Only a trial shows whether transactions commit.
    Present,
}

/// Restricted transactional memory as reported by CPUID.
pub fn rtm() -> RtmSupport {
    // CPUID 7, EBX bit 11: RTM; EDX bit 11: RTM_ALWAYS_ABORT.
    match leaf(7) {
        Some([_, _, _, edx]) if bit(edx, 11) => RtmSupport::AlwaysAborts,
        Some([_, ebx, _, _]) if bit(ebx, 11) => RtmSupport::Present,
        _ => RtmSupport::Absent,
    }
}

fn bit(word: u32, number: u32) -> bool {
    word >> number & 1 == 1
}

/// EAX, EBX, ECX and EDX of a leaf (subleaf 0); `None` if there is no such leaf.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn leaf(number: u32) -> Option<[u32; 4]> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let highest = __cpuid(number & 0x8000_0000).eax;
    let read = || {
        let at = __cpuid_count(number, 0);
        [at.eax, at.ebx, at.ecx, at.edx]
    };
    (number <= highest).then(read)
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn leaf(_: u32) -> Option<[u32; 4]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn it_agrees_with_the_kernel() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let Some(flags) = crate::machine::field(&text, "flags") else {
            return;
        };
        let has = |name| flags.split(' ').any(|flag| flag == name);
        assert_eq!(has_hypervisor(), has("hypervisor"));
        assert!(!has("rtm") || rtm() != RtmSupport::Absent);
        assert!(!has("nonstop_tsc") || has_invariant_counter());
    }

    #[test]
    fn leaves_beyond_the_last_are_none() {
        assert_eq!(leaf(0x7fff_ffff), None);
    }
}
