/*
 * zip — the archive that torch.save writes for each tensor, inside a .distcp file.
 *
 * muster reads archives itself: the entries are stored without compression, their bytes are read in
 * place by pread, any range of them, of files of many gigabytes, and each archive is a range of a
 * larger file. libzip and libarchive read streams of whole entries of a whole file.
 *
 * Refused: entries that are compressed or encrypted; a comment; several disks; a name that is
 * absolute, has a part "..", a backslash or a control character, or occurs twice; an entry whose
 * local header disagrees with the directory; entries that overlap each other or the directory; more
 * than DCP_ZIP_ENTRIES_MAX entries. Sizes above 4 GiB are in the zip64 fields.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_ZIP_H
#define MUSTER_AGENT_ENGINE_DCP_ZIP_H

#include "base/err.h"

#include <stdint.h>

/* A tensor's archive has 7 entries. */
enum { DCP_ZIP_NAME = 128, DCP_ZIP_ENTRIES_MAX = 256, DCP_ZIP_DIRECTORY_MAX = 1 << 16 };

struct dcp_zip_entry {
	char name[DCP_ZIP_NAME];
	int64_t at, size; /* of its bytes in the file */
	int64_t header;   /* of its local header in the file */
	uint32_t crc;     /* of its bytes; 0: PyTorch was told not to compute it */
};

struct dcp_zip {
	struct dcp_zip_entry *entries; /* in the order of their bytes */
	int n;
};

/* The archive is bytes [at, at + size) of the file. name: what it is, for errors. ERR_CORRUPT or
 * ERR_UNSUPPORTED if it is refused. Free `out` with dcp_zip_free. */
int dcp_zip_read(int fd, int64_t at, int64_t size, const char *name, struct dcp_zip *out,
		 struct err *e);
void dcp_zip_free(struct dcp_zip *z);

/* The entry FOLDER/`name`; all entries of torch's archives are in one folder. NULL: none. */
const struct dcp_zip_entry *dcp_zip_find(const struct dcp_zip *z, const char *name);

/* Reads the entry's bytes and compares their CRC. ERR_CORRUPT: it differs. */
int dcp_zip_check(int fd, const struct dcp_zip_entry *entry, const char *name, struct err *e);

#endif
