//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = |part| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default();
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,-soname,libframeyard_memblock.so.{}.{}",
        version("MAJOR"),
        version("MINOR")
    );
}
