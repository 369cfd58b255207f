/* upkeep.h - every ten minutes: deduplication keys past their age, and chats past the limit, go. */
#pragma once

struct relay;
struct upkeep;

struct upkeep *upkeep_new(struct relay *r); /* the first time ten minutes from now */
void upkeep_free(struct upkeep *u);         /* NULL is fine */
