//! Mutations of a corpus, the same for the same seed.

/// Bytes and words that parsers trip over.
const TOKENS: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"/",
    b"-",
    b"%",
    b"\"",
    b"'",
    b"<",
    b">",
    b"&lt;",
    b"]]>",
    b"<!--",
    b"{",
    b"[",
    b": ",
    b"18446744073709551615",
    b"-1",
    b"0",
    b"\xe2\x80\x8b",
    b"\xf0\x9f\x92\xa5",
];

/// No input grows beyond this.
const MOST: usize = 16 * 1024;

/// Makes inputs from a corpus.
pub(super) struct Mutator<'a> {
    state: u64,
    corpus: &'a [Vec<u8>],
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seed: u64, corpus: &'a [Vec<u8>]) -> Self {
        Mutator {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            corpus,
        }
    }

    /// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators").
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, and 0 where that is 0.
    fn below(&mut self, end: usize) -> usize {
        let random = self.random() >> 33;
        usize::try_from(random).unwrap_or_default() % end.max(1)
    }

    fn pick(&mut self) -> &'a [u8] {
        let corpus = self.corpus;
        let at = self.below(corpus.len());
        &corpus[at]
    }

    /// The next input: one of the corpus, changed in one to eight places.
    pub(super) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick().to_vec();
        for _ in 0..=self.below(8) {
            self.mutate(&mut input);
        }
        input.truncate(MOST);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let length = self.below(32).min(input.len() - at);
        match self.below(8) {
            0 => input.truncate(at),
            1 => drop(input.drain(at..at + length)),
            2 if at < input.len() => input[at] ^= 1 << self.below(8),
            3 if at < input.len() => input[at] = self.random().to_le_bytes()[0],
            4 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
            // The same once more, or many times: nesting, long lines, duplicates.
            5 => {
                let times = [1, 2, 100][self.below(3)];
                let piece = input[at..at + length].repeat(times);
                input.splice(at..at, piece);
            }
            // A piece of another.
            6 => {
                let other = self.pick();
                let from = self.below(other.len());
                let end = (from + self.below(64)).min(other.len());
                input.splice(at..at + length, other[from..end].iter().copied());
            }
            _ => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at + length, token.iter().copied());
            }
        }
    }
}
