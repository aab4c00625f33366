//! Splits Rust source into comments and the tokens that the checks need: words, path separators and punctuation. Skips
//! literals.

/// The kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword. A raw identifier is without its `r#`.
    Word(String),
    /// The path separator `::`.
    PathSeparator,
    /// Any other character.
    Punctuation(char),
}

/// A token and its line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    pub(crate) fn is(&self, punctuation: char) -> bool {
        self.kind == Kind::Punctuation(punctuation)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// One line of a comment, without slashes and asterisks at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// The tokens of a source text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    scan(text).tokens
}

/// The comments of a source text, line by line.
pub(crate) fn comments(text: &str) -> Vec<Comment<'_>> {
    scan(text).comments
}

fn scan(text: &str) -> Scanner<'_> {
    let mut scanner = Scanner { rest: text, line: 1, tokens: Vec::new(), comments: Vec::new() };
    while scanner.step() {}
    scanner
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment<'a>>,
}

impl<'a> Scanner<'a> {
    /// Takes one token, comment or literal. Returns false at the end of the text.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.comment(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment(self.rest));
        } else if let Some(length) = string_literal(self.rest).or_else(|| char_literal(self.rest)) {
            self.skip(length);
        } else if first == '\'' {
            // A lifetime or label. Its name is not a word.
            self.skip(1 + word_length(&self.rest[1..]));
        } else if first.is_ascii_digit() {
            self.skip(word_length(self.rest));
        } else if first == '_' || first.is_alphabetic() {
            let raw = self.rest.strip_prefix("r#").map_or(0, |_| 2);
            let length = raw + word_length(&self.rest[raw..]);
            self.push(Kind::Word(self.rest[raw..length].to_owned()), length);
        } else if self.rest.starts_with("::") {
            self.push(Kind::PathSeparator, 2);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(Kind::Punctuation(first), first.len_utf8());
        }
        true
    }

    fn comment(&mut self, length: usize) {
        let text: &'a str = &self.rest[..length];
        for (below, line) in text.lines().enumerate() {
            let text = line.trim().trim_start_matches(['/', '!', '*']).trim();
            self.comments.push(Comment { text, line: self.line + below });
        }
        self.skip(length);
    }

    fn push(&mut self, kind: Kind, length: usize) {
        self.tokens.push(Token { kind, line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        self.line += self.rest[..length].bytes().filter(|byte| *byte == b'\n').count();
        self.rest = &self.rest[length..];
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())
}

/// The length of the block comment that `text` begins with. Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the string literal (plain, byte, C or raw) that `text` begins with. `None` if it begins with none.
fn string_literal(text: &str) -> Option<usize> {
    let prefix = ["", "b", "c", "r", "br", "cr"].into_iter().rev().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| {
            let rest = if prefix.ends_with('r') { rest.trim_start_matches('#') } else { rest };
            rest.starts_with('"')
        })
    })?;
    if prefix.ends_with('r') {
        let hashes = text[prefix.len()..].len() - text[prefix.len()..].trim_start_matches('#').len();
        let body = prefix.len() + hashes + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()));
    }
    Some(quoted(text, prefix.len() + 1, '"'))
}

/// The length of the character literal that `text` begins with. `None` for a lifetime or other text.
fn char_literal(text: &str) -> Option<usize> {
    let open = text.strip_prefix("b'").map_or(1, |_| 2);
    if open == 1 && !text.starts_with('\'') {
        return None;
    }
    let mut inside = text[open..].chars();
    let first = inside.next()?;
    if first == '\\' || inside.next() == Some('\'') { Some(quoted(text, open, '\'')) } else { None }
}

/// The end of the literal whose body begins at `body`, behind its closing quote.
fn quoted(text: &str, body: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text[body..].char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return body + at + c.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        tokens(text).iter().filter_map(|token| token.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f \"g \\\" h\" i"), ["a", "f", "i"]);
        assert_eq!(words(r####"a r"b" r#"c " d"# br##"e "# f"## b"g" c"h" i"####), ["a", "i"]);
        assert_eq!(words(r"'a' b '\'' c '\u{41}' d b'e' '€' f"), ["b", "c", "d", "f"]);
    }

    #[test]
    fn comments_are_found_line_by_line() {
        let found = comments("//! a\nx(\"// b\"); // c\n/* d\n * e */ y");
        let found: Vec<_> = found.iter().map(|comment| (comment.line, comment.text)).collect();
        assert_eq!(found, [(1, "a"), (2, "c"), (3, "d"), (4, "e */")]);
    }

    #[test]
    fn lifetimes_and_labels_are_not_character_literals() {
        assert_eq!(
            words("fn f<'a>(x: &'a str, y: &'static T) { 'out: loop { break 'out; } }"),
            ["fn", "f", "x", "str", "y", "T", "loop", "break"]
        );
    }

    #[test]
    fn raw_identifiers_lose_their_mark_and_numbers_are_not_words() {
        assert_eq!(words("r#type 0x1f_u64 1.5e3 x"), ["type", "x"]);
    }

    #[test]
    fn lines_are_counted_through_literals_and_comments() {
        let found = tokens("\"a\nb\" /*\n*/ x\ny");
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [3, 4]);
    }
}
