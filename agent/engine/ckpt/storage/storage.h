/*
 * storage — where checkpoints are kept: one table of operations for each kind of storage.
 *
 * Every access to a checkpoint (writer, loader, search, verification, pruning, import) uses this
 * table. Its first row is POSIX folders (storage_posix.c). The table assumes neither file
 * descriptors nor that a folder can be renamed, so that an object store or the memory of other
 * ranks can be a row.
 *
 * Names. A DIR holds entries, and an entry holds files. A path is "DIR", "DIR/ENTRY" or
 * "DIR/ENTRY/FILE", and DIR begins with the scheme of its storage, such as "s3://". DIR also holds
 * small files of its own ("DIR/RUN"). An entry is either an attempt, which one job is writing, or a
 * checkpoint. Readers see an attempt only as a name in the list of DIR.
 *
 * What every storage guarantees:
 *  1. A file whose `finish` succeeded, and whose attempt was synced, survives a crash of its
 *     machine. After a failed `finish` nothing is known, and the caller abandons the attempt.
 *  2. `commit` is atomic: a reader finds the old checkpoint of that name (or none), or the new one
 *     with all files. MANIFEST.json becomes visible last.
 *  3. `remove` makes MANIFEST.json invisible first, so that a reader never takes a half removed
 *     entry for a checkpoint.
 *  4. `put` replaces a file atomically.
 * A storage that cannot rename keeps the attempt's files where they are: `commit` writes one small
 * object under the checkpoint's name that points to them, and `open`, `size`, `list` and `remove`
 * follow it (tests/unit/agent/ckpt_memory_storage.c does this).
 *
 * Errors: ERR_NOTFOUND if the object does not exist, ERR_CORRUPT if it is not what a checkpoint may
 * hold (a symbolic link, a folder in place of a file), ERR_NOMEM, otherwise ERR_IO or ERR_DENIED.
 * The text begins with the path. Operations may be called from several threads, but each open file
 * belongs to one thread.
 *
 * To add a storage, there are 4 things to do:
 *  1. ckpt/storage/storage_NAME.c: the operations, and `const struct ckpt_storage ckpt_storage_NAME`;
 *  2. here: its `extern` declaration;
 *  3. ckpt/storage/storage.c: its row in `rows`, before POSIX, whose scheme "" fits every path;
 *  4. tests/unit/agent/test_ckpt_storage.c: its row in `storages`, which runs the conformance
 *     tests.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_STORAGE_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_STORAGE_H

#include "agent/engine/ckpt/storage/io.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_storage;

/* An open file. Each storage embeds it as the first member of its own type. */
struct ckpt_file {
	const struct ckpt_storage *storage;
	int64_t size; /* bytes; of a file that is being written: 0 */
};

/* Called for each name of a list; a nonzero result ends the list and fails it. It must not change
 * what is listed. */
typedef int ckpt_storage_visit(void *arg, const char *name, struct err *e);

/* The names of attempts begin with it. Readers do not see them, and the next commit removes those whose writer
 * is dead. */
#define ATTEMPT_PREFIX ".attempt-"

/* Which file it is, and whether it was modified since. */
struct ckpt_stamp {
	uint64_t device, inode;
	int64_t size, seconds, nanoseconds;
};

struct ckpt_storage_ops {
	const char *name;   /* "posix" */
	const char *scheme; /* what each of its paths begins with: "s3://"; "": every path */

	/* --- reading --- */

	/* Visits the names of the entries and files of a DIR, or of the files of an entry, in any
	 * order. ERR_NOTFOUND if the DIR or the entry does not exist. */
	int (*list)(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
		    void *arg, struct err *e);
	/* Sets the size of a file without opening it. */
	int (*size)(const struct ckpt_storage *s, const char *path, int64_t *size, struct err *e);
	/* Opens a file for reading. The caller closes it. */
	int (*open)(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		    struct err *e);
	/* Reads exactly n bytes at the offset `at`. */
	int (*read)(struct ckpt_file *f, int64_t at, void *data, size_t n, struct err *e);

	/* --- writing --- */

	/* Makes DIR exist and checks that this process may write to it. */
	int (*prepare)(const struct ckpt_storage *s, const char *dir, struct err *e);
	/* Makes the attempt DIR/ENTRY exist for this rank. With `create` it must be new. Rank 0
	 * creates it; the other ranks then call this without `create`. */
	int (*begin)(const struct ckpt_storage *s, const char *attempt, bool create, struct err *e);
	/* Opens a new file of an attempt for writing; fails if it exists. */
	int (*create)(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		      struct err *e);
	/* Appends n bytes. */
	int (*write)(struct ckpt_file *f, const void *data, size_t n, struct err *e);
	/* Makes the written bytes durable and closes the file, even if it fails. */
	int (*finish)(struct ckpt_file *f, struct err *e);
	/* Closes a file that was read, or abandons one that is being written. */
	void (*close)(struct ckpt_file *f);
	/* Makes `to`, in an attempt, another name of the file `from`, in a checkpoint, if that is
	 * still the file that it was when its stamp was taken. NULL, both: a file has one name. */
	int (*link)(const struct ckpt_storage *s, const char *from, const char *to,
		    const struct ckpt_stamp *stamp, struct err *e);
	int (*stamp)(const struct ckpt_storage *s, const char *path, struct ckpt_stamp *out,
		     struct err *e);
	/* Removes a file of an attempt, so that it can be created again; one that does not exist is
	 * a success. */
	int (*discard)(const struct ckpt_storage *s, const char *path, struct err *e);
	/* Makes a file of an attempt durable that another process has written, and may not have
	 * finished. NULL: a file that can be seen is durable. */
	int (*settle)(const struct ckpt_storage *s, const char *path, struct err *e);
	/* Makes the names of the files that this rank finished in the attempt durable. NULL: they
	 * are durable after `finish`. */
	int (*sync)(const struct ckpt_storage *s, const char *attempt, struct err *e);
	/* Writes the n bytes of `manifest` as the attempt's MANIFEST.json and makes the attempt the
	 * checkpoint `path`. A checkpoint that has this path already stays valid until the new one
	 * is, if need be under the name `aside`, which the caller removes later. */
	int (*commit)(const struct ckpt_storage *s, const char *attempt, const char *path,
		      const char *aside, const void *manifest, size_t n, struct err *e);

	/* --- entries and small files --- */

	/* Writes DIR/FILE whole, in place of an older one, and makes it durable. */
	int (*put)(const struct ckpt_storage *s, const char *path, const void *data, size_t n,
		   struct err *e);
	/* Removes an attempt or a checkpoint; one that does not exist is a success. A checkpoint whose removal is
	 * interrupted is none any more. */
	int (*remove)(const struct ckpt_storage *s, const char *path, struct err *e);
	/* Gives an entry another name in its DIR. 1 if that name is taken, 0 on success, -1. */
	int (*rename)(const struct ckpt_storage *s, const char *path, const char *to,
		      struct err *e);
	/* Whether two paths name one DIR or entry. NULL: the paths are compared. */
	bool (*same)(const struct ckpt_storage *s, const char *a, const char *b);
};

struct ckpt_storage {
	const struct ckpt_storage_ops *ops;
	const void *arg; /* the storage's own */
};

/* Folders of a local or network file system. arg: its system calls, a struct ckpt_io. */
extern const struct ckpt_storage ckpt_storage_posix;

/* Object stores, s3://bucket/prefix (storage_s3.c). */
extern const struct ckpt_storage ckpt_storage_s3;

/* The storage of a path. Never NULL. */
const struct ckpt_storage *ckpt_storage_of(const char *path);

/* --- helpers over the table ---------------------------------------------------------- */

/* Joins PATH/NAME into `out` of `n` bytes. */
int ckpt_storage_join(char *out, size_t n, const char *path, const char *name, struct err *e);
/* Appends the whole file to `out`; one of more than `most` bytes is ERR_CORRUPT. */
int ckpt_storage_read_whole(const struct ckpt_storage *s, const char *path, int64_t most,
			    struct buf *out, struct err *e);
/* Writes a new file of an attempt: create, write, finish. */
int ckpt_storage_write_whole(const struct ckpt_storage *s, const char *path, const void *data,
			     size_t n, struct err *e);
/* Whether the entry or file `name` is in the list of DIR: 1, 0, or -1 on error. A DIR that does not
 * exist has none. */
int ckpt_storage_has(const struct ckpt_storage *s, const char *dir, const char *name,
		     struct err *e);
bool ckpt_storage_same(const struct ckpt_storage *s, const char *a, const char *b);
/* The names of a list, in the order of strcmp. */
struct ckpt_storage_names {
	char **names;
	size_t n;
};
/* As `list`; the caller frees *out. What does not exist has no names. */
int ckpt_storage_names_of(const struct ckpt_storage *s, const char *path,
			  struct ckpt_storage_names *out, struct err *e);
void ckpt_storage_names_free(struct ckpt_storage_names *l);
bool ckpt_storage_named(const struct ckpt_storage_names *l, const char *name);
enum { CKPT_STORAGE_RENAMES = 100 };
/* Renames the entry DIR/NAME to DIR/PREFIXNAME, or to DIR/PREFIXNAME.1, .2 and so on if that is
 * taken; the new path goes to to[PATH_MAX]. ERR_IO: CKPT_STORAGE_RENAMES names are taken. */
int ckpt_storage_set_aside(const struct ckpt_storage *s, const char *path, const char *prefix,
			   char *to, struct err *e);

#endif
