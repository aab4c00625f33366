//! Link options of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Memory, handlers and thread-local state stay in use until the process ends.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Calls among the functions of the library stay in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
