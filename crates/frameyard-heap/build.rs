//! Link options of the library for `LD_PRELOAD`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Cargo has no link options for a shared library among the examples alone. Programs, such as the tests, ignore these two.
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        // Memory, handlers and thread-local state stay in use until the process ends.
        println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
        // Calls among the functions of the library stay in it.
        println!("cargo:rustc-link-arg=-Wl,-Bsymbolic-functions");
    }
}
