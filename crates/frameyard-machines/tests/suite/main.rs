//! Tests of machine descriptions through the public API.

mod built_in;
mod captures;
mod descriptions;
mod host;
mod parsers;
