//! Streaming stores: whole cache lines written past the caches, from the widest registers that the CPU has.

/// The words of a cache line.
pub(crate) type Line = [u64; 8];

/// Writes `line` to every 64 bytes, then fences. Returns `false` and writes nothing on architectures without such
/// stores.
///
/// # Panics
///
/// If the bytes do not start on a cache line, or are no whole lines.
pub(crate) fn stream(bytes: &mut [u8], line: &Line) -> bool {
    assert!((bytes.as_ptr() as usize).is_multiple_of(size_of::<Line>()), "starts on a cache line");
    assert!(bytes.len().is_multiple_of(size_of::<Line>()), "whole cache lines");
    #[cfg(target_arch = "x86_64")]
    {
        x86::stream(bytes, line);
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = line;
        false
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256, _mm512_loadu_si512, _mm512_stream_si512,
    };

    use super::Line;

    /// Writes whole cache lines with the widest streaming stores that the CPU has.
    pub(super) fn stream(bytes: &mut [u8], line: &Line) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512.
            unsafe { avx512(bytes, line) }
        } else if is_x86_feature_detected!("avx") {
            // SAFETY: the CPU has AVX.
            unsafe { avx(bytes, line) }
        } else {
            sse2(bytes, line);
        }
        fence();
    }

    /// Orders the streaming stores before later stores, such as the one that tells another thread that we are done.
    fn fence() {
        // SAFETY: every x86-64 has SSE, and a fence touches no memory.
        unsafe { _mm_sfence() };
    }

    #[target_feature(enable = "avx512f")]
    fn avx512(bytes: &mut [u8], line: &Line) {
        // SAFETY: the line has 64 readable bytes, and the load needs no alignment.
        let value = unsafe { _mm512_loadu_si512(line.as_ptr().cast::<__m512i>()) };
        for to in bytes.chunks_exact_mut(size_of::<Line>()) {
            // SAFETY: 64 bytes of an exclusive slice, at a multiple of 64.
            unsafe { _mm512_stream_si512(to.as_mut_ptr().cast::<__m512i>(), value) };
        }
    }

    #[target_feature(enable = "avx")]
    fn avx(bytes: &mut [u8], line: &Line) {
        let from = line.as_ptr().cast::<__m256i>();
        // SAFETY: the line has 64 readable bytes, and the loads need no alignment.
        let halves = unsafe { [_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))] };
        for to in bytes.chunks_exact_mut(size_of::<Line>()) {
            let to = to.as_mut_ptr().cast::<__m256i>();
            for (at, half) in halves.into_iter().enumerate() {
                // SAFETY: 32 of 64 bytes of an exclusive slice, at a multiple of 32.
                unsafe { _mm256_stream_si256(to.add(at), half) };
            }
        }
    }

    fn sse2(bytes: &mut [u8], line: &Line) {
        let from = line.as_ptr().cast::<__m128i>();
        // SAFETY: the line has 64 readable bytes, and the loads need no alignment.
        let quarters: [__m128i; 4] = std::array::from_fn(|at| unsafe { _mm_loadu_si128(from.add(at)) });
        for to in bytes.chunks_exact_mut(size_of::<Line>()) {
            let to = to.as_mut_ptr().cast::<__m128i>();
            for (at, quarter) in quarters.into_iter().enumerate() {
                // SAFETY: 16 of 64 bytes of an exclusive slice, at a multiple of 16.
                unsafe { _mm_stream_si128(to.add(at), quarter) };
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::super::tests::{LINE, Lines};
        use super::*;

        #[test]
        fn all_widths_write_the_same() {
            type Writer = fn(&mut [u8]);
            let widths: [(&str, bool, Writer); 3] = [
                // SAFETY: the loop below calls it only if the second field says that the CPU has AVX-512.
                ("avx512", is_x86_feature_detected!("avx512f"), |bytes| unsafe { avx512(bytes, &LINE) }),
                // SAFETY: as above, for AVX.
                ("avx", is_x86_feature_detected!("avx"), |bytes| unsafe { avx(bytes, &LINE) }),
                ("sse2", true, |bytes| sse2(bytes, &LINE)),
            ];
            for (name, there, write) in widths {
                if !there {
                    println!("skipped: the CPU has no {name}");
                    continue;
                }
                let mut lines = Lines::new();
                write(lines.bytes());
                fence();
                assert!(lines.hold(&LINE), "{name}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const LINE: Line = [1, 2, 3, 4, 5, 6, 7, u64::MAX];

    /// Five cache lines.
    #[repr(align(64))]
    pub(super) struct Lines([u8; 64 * 5]);

    impl Lines {
        pub(super) fn new() -> Self {
            Self([0xa5; 64 * 5])
        }

        pub(super) fn bytes(&mut self) -> &mut [u8] {
            &mut self.0
        }

        pub(super) fn hold(&self, line: &Line) -> bool {
            let expected: Vec<u8> = line.iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.0.chunks(64).all(|bytes| bytes == expected)
        }
    }

    #[test]
    fn streaming_writes_every_line() {
        let mut lines = Lines::new();
        let written = stream(lines.bytes(), &LINE);
        assert_eq!(written, cfg!(target_arch = "x86_64"));
        assert_eq!(lines.hold(&LINE), written);
    }

    #[test]
    #[should_panic(expected = "whole cache lines")]
    fn an_incomplete_line_is_refused() {
        stream(&mut Lines::new().bytes()[..32], &LINE);
    }
}
