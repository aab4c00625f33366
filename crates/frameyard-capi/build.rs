//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The kernel may read the description of a thread's last restartable sequence after the thread has left it: the library stays
    // mapped after `dlclose`.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let version = |part| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libframeyard.so.{}.{}", version("MAJOR"), version("MINOR"));
}
