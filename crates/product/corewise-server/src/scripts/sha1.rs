//! SHA-1 [FIPS 180-4], by which clients name scripts. No protection against anybody who wants two
//! scripts of one name: Redis has the same names.

/// The digest of `text` in hexadecimal digits.
pub(crate) fn hex(text: &[u8]) -> [u8; 40] {
    let mut state = [
        0x6745_2301_u32,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let mut blocks = text.chunks_exact(64);
    for block in &mut blocks {
        add(&mut state, block);
    }
    let rest = blocks.remainder();
    let mut end = [0; 128];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let len = if rest.len() < 56 { 64 } else { 128 };
    end[len - 8..len].copy_from_slice(&(text.len() as u64 * 8).to_be_bytes());
    end[..len]
        .chunks_exact(64)
        .for_each(|block| add(&mut state, block));
    let mut digits = [0; 40];
    for (index, digit) in digits.iter_mut().enumerate() {
        let nibble = state[index / 8] >> (28 - index % 8 * 4) & 15;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    digits
}

fn add(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        let word = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = word.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(mixed)
            .wrapping_add(e)
            .wrapping_add(constant)
            .wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_are_those_of_the_standard() {
        for (text, expected) in [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            (
                &"a".repeat(1_000_000),
                "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
            ),
        ] {
            assert_eq!(super::hex(text.as_bytes()), expected.as_bytes());
        }
    }
}
