/* list — reads the pages of a list of objects or of unfinished uploads. For object.h. */
#ifndef MUSTER_BASE_S3_LIST_H
#define MUSTER_BASE_S3_LIST_H

#include "base/s3/object.h"

/* Reads one page. *more: another one follows, from `next` on (a token), or from `next` and `next_id`
 * on (a key and an upload). ERR_PROTO. */
struct s3_page {
	bool more;
	char next[2048], next_id[1024];
};
int s3_list_page(const char *text, size_t n, s3_list_visit *visit, void *arg, struct s3_page *out,
		 struct err *e);
int s3_unfinished_page(const char *text, size_t n, s3_unfinished_visit *visit, void *arg,
		       struct s3_page *out, struct err *e);

#endif
