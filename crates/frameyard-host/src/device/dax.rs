//! The system's description of a DAX device.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use frameyard::ByteSize;

use super::{DeviceAlignment, DeviceMemoryError};
use crate::memory::{FileLock, MemoryError};

/// Where the system describes character devices, by number.
const SYS: &str = "/sys/dev/char";

/// The size and the alignment of a DAX device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dax {
    pub(super) size: ByteSize,
    pub(super) align: ByteSize,
}

/// Opens a DAX device and locks it.
pub(super) fn open(path: &Path, lock: FileLock) -> Result<(File, Dax), DeviceMemoryError> {
    let cannot_open = |source| MemoryError::FileOpen { path: path.to_owned(), source };
    let is_device = fs::metadata(path).map_err(cannot_open)?.file_type().is_char_device();
    if !is_device {
        return Err(DeviceMemoryError::NotDax(path.to_owned()));
    }
    let file = File::options().read(true).write(true).open(path).map_err(cannot_open)?;
    let number = file.metadata().map_err(cannot_open)?.rdev();
    let folder = Path::new(SYS).join(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    if !is_dax(&folder) {
        return Err(DeviceMemoryError::NotDax(path.to_owned()));
    }
    lock.take(&file, path)?;
    let found = read(&folder).map_err(|source| DeviceMemoryError::DaxUnknown { path: path.to_owned(), source })?;
    Ok((file, found))
}

/// Whether a folder describes a device of the DAX subsystem.
fn is_dax(folder: &Path) -> bool {
    let subsystem = fs::read_link(folder.join("subsystem"));
    subsystem.is_ok_and(|subsystem| subsystem.file_name().is_some_and(|name| name == "dax"))
}

/// Reads `size` and `align` from the folder of a device.
fn read(folder: &Path) -> io::Result<Dax> {
    let number = |name: &str| -> io::Result<ByteSize> {
        let text = fs::read_to_string(folder.join(name))?;
        let bytes = text.trim().parse().map(ByteSize);
        bytes.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: expected a number of bytes")))
    };
    Ok(Dax { size: number("size")?, align: number("align")? })
}

impl Dax {
    /// Checks that a device of this size and alignment fits the DAX device.
    pub(super) fn check(
        self,
        path: &Path,
        needed: ByteSize,
        requested: DeviceAlignment,
    ) -> Result<(), DeviceMemoryError> {
        let path = || path.to_owned();
        if self.align.0 == 0 || !requested.size().0.is_multiple_of(self.align.0) {
            return Err(DeviceMemoryError::DaxAlignment { path: path(), own: self.align, asked: Some(requested) });
        }
        if needed > self.size {
            return Err(DeviceMemoryError::DaxTooSmall { path: path(), needed, size: self.size });
        }
        Ok(())
    }

    /// Its own alignment.
    pub(super) fn alignment(self, path: &Path) -> Result<DeviceAlignment, DeviceMemoryError> {
        let known = DeviceAlignment::ALL.into_iter().find(|alignment| alignment.size() == self.align);
        let unknown = || DeviceMemoryError::DaxAlignment { path: path.to_owned(), own: self.align, asked: None };
        known.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::Tree;

    fn text(error: &DeviceMemoryError) -> String {
        error.to_string()
    }

    #[test]
    fn size_and_alignment_are_read_from_the_system() {
        let tree = Tree::new();
        tree.write("size", "2147483648\n");
        tree.write("align", "2097152\n");
        let found = read(tree.path()).unwrap();
        assert_eq!(found, Dax { size: ByteSize::gib(2), align: ByteSize::mib(2) });
        assert_eq!(found.alignment(Path::new("x")).unwrap(), DeviceAlignment::Huge);
        tree.write("align", "two\n");
        assert_eq!(read(tree.path()).unwrap_err().to_string(), "align: expected a number of bytes");
        tree.remove("size");
        assert_eq!(read(tree.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_size_or_alignment_that_a_device_lacks_is_refused() {
        let device = Dax { size: ByteSize::gib(2), align: ByteSize::mib(2) };
        let path = Path::new("/dev/dax0.0");
        let refusal = |size, alignment| text(&device.check(path, size, alignment).unwrap_err());
        device.check(path, ByteSize::gib(2), DeviceAlignment::Gigantic).unwrap();
        assert_eq!(
            refusal(ByteSize::gib(2), DeviceAlignment::Base),
            "/dev/dax0.0: the device has an alignment of 2M: 4K is no multiple of it"
        );
        assert_eq!(
            refusal(ByteSize::gib(3), DeviceAlignment::Huge),
            "/dev/dax0.0: the device has 2G, and 3G were requested: request less"
        );
        let odd = Dax { align: ByteSize::mib(4), ..device };
        assert_eq!(
            text(&odd.alignment(path).unwrap_err()),
            "/dev/dax0.0: the device has an alignment of 4M: 4K, 2M or 1G can be used"
        );
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(open(Path::new("/dev/null"), FileLock::None), Err(DeviceMemoryError::NotDax(_))));
        assert!(matches!(open(Path::new("/proc/self/exe"), FileLock::None), Err(DeviceMemoryError::NotDax(_))));
        let missing = open(Path::new("/dev/dax99.99"), FileLock::None);
        assert!(matches!(missing, Err(DeviceMemoryError::Memory(MemoryError::FileOpen { .. }))));
    }
}
