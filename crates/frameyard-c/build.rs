//! How the shared library for programs is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The kernel may read the description of a thread's last restartable sequence after the thread has left it: the library stays mapped
    // after `dlclose`. The option is also that of this package's tests, for which it means nothing: cargo would accept an option for shared
    // libraries only from a package that always builds one.
    if std::env::var_os("CARGO_FEATURE_HOSTED").is_some() {
        println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
    }
}
