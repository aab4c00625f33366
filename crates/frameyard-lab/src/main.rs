//! The program `frameyard`: everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    frameyard_lab::run(std::env::args_os())
}
