//! Scores as integers that sort like them.

/// Maps a score to an integer: `key(a) < key(b)` if and only if `a < b`, and -0 and +0 have equal
/// keys. `score` must not be NaN.
#[inline]
pub(super) fn key(score: f64) -> u64 {
    // Adding +0 turns -0 into +0, and changes no other value.
    let bits = (score + 0.0).to_bits();
    let is_negative = bits >> 63 == 1;
    // Negative numbers have descending bits, below the positive ones.
    if is_negative { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn keys_sort_like_scores() {
        let scores = [
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            -f64::from_bits(1),
            -0.0,
            0.0,
            f64::from_bits(1),
            f64::MIN_POSITIVE,
            1.0,
            1.0 + f64::EPSILON,
            f64::MAX,
            f64::INFINITY,
        ];
        for a in scores {
            for b in scores {
                assert_eq!(key(a).cmp(&key(b)), a.partial_cmp(&b).unwrap(), "{a} {b}");
            }
        }
    }
}
