//! The C functions of a yard. Beside those of the module `hosted`, which have the same names in C, they are functions of Rust alone.

use crate::kernel::handle::fy_yard;

crate::shared::functions!(fy_yard, cfg_attr(not(feature = "hosted"), unsafe(no_mangle)));
crate::shared::device_functions!(fy_yard, cfg_attr(not(feature = "hosted"), unsafe(no_mangle)));
