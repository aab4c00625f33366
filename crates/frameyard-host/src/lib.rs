//! Frameyard on real memory: see the README.
