/* mail_late.h - <gmime/gmime.h> and <libpsl.h>, with the libraries loaded when a mail bot opens.
 * Private to this folder.
 *
 * GMime brings GLib and GPGME with it, and a server without a mail bot should not carry them.  So
 * every call goes through a table, which mail_late_load() fills.  Instances are cast in plain C:
 * GLib's checked casts would need more of its functions. */
#pragma once
#define G_DISABLE_CAST_CHECKS
#include <gmime/gmime.h>
#include <libpsl.h>
#include <stdbool.h>

#define MAIL_LATE_GMIME(X) \
    X(g_date_time_new_from_unix_utc) \
    X(g_date_time_to_unix) \
    X(g_date_time_unref) \
    X(g_free) \
    X(g_mime_content_disposition_get_disposition) \
    X(g_mime_content_type_get_media_subtype) \
    X(g_mime_content_type_get_media_type) \
    X(g_mime_content_type_get_parameter) \
    X(g_mime_content_type_is_type) \
    X(g_mime_data_wrapper_new_with_stream) \
    X(g_mime_data_wrapper_write_to_stream) \
    X(g_mime_format_options_free) \
    X(g_mime_format_options_new) \
    X(g_mime_format_options_set_newline_format) \
    X(g_mime_header_get_name) \
    X(g_mime_header_get_raw_value) \
    X(g_mime_header_list_get_count) \
    X(g_mime_header_list_get_header_at) \
    X(g_mime_init) \
    X(g_mime_message_add_mailbox) \
    X(g_mime_message_get_date) \
    X(g_mime_message_get_from) \
    X(g_mime_message_get_message_id) \
    X(g_mime_message_get_mime_part) \
    X(g_mime_message_get_subject) \
    X(g_mime_message_new) \
    X(g_mime_message_part_get_message) \
    X(g_mime_message_part_get_type) \
    X(g_mime_message_set_date) \
    X(g_mime_message_set_message_id) \
    X(g_mime_message_set_mime_part) \
    X(g_mime_message_set_subject) \
    X(g_mime_multipart_add) \
    X(g_mime_multipart_get_count) \
    X(g_mime_multipart_get_part) \
    X(g_mime_multipart_get_type) \
    X(g_mime_multipart_new_with_subtype) \
    X(g_mime_multipart_set_boundary) \
    X(g_mime_object_encode) \
    X(g_mime_object_get_content_disposition) \
    X(g_mime_object_get_content_type) \
    X(g_mime_object_get_header) \
    X(g_mime_object_get_header_list) \
    X(g_mime_object_set_disposition) \
    X(g_mime_object_set_header) \
    X(g_mime_object_write_to_stream) \
    X(g_mime_parser_construct_message) \
    X(g_mime_parser_new_with_stream) \
    X(g_mime_part_get_content) \
    X(g_mime_part_get_filename) \
    X(g_mime_part_get_type) \
    X(g_mime_part_new_with_type) \
    X(g_mime_part_set_content) \
    X(g_mime_part_set_content_encoding) \
    X(g_mime_part_set_filename) \
    X(g_mime_references_free) \
    X(g_mime_references_get_message_id) \
    X(g_mime_references_length) \
    X(g_mime_references_parse) \
    X(g_mime_stream_mem_get_byte_array) \
    X(g_mime_stream_mem_new) \
    X(g_mime_stream_mem_new_with_buffer) \
    X(g_mime_text_part_get_text) \
    X(g_mime_text_part_get_type) \
    X(g_mime_text_part_new_with_subtype) \
    X(g_mime_text_part_set_charset) \
    X(g_mime_text_part_set_text) \
    X(g_mime_utils_header_decode_text) \
    X(g_object_unref) \
    X(g_type_check_instance_is_a) \
    X(internet_address_get_name) \
    X(internet_address_list_get_address) \
    X(internet_address_list_length) \
    X(internet_address_mailbox_get_addr) \
    X(internet_address_mailbox_get_type)

#define MAIL_LATE_PSL(X) \
    X(psl_free) \
    X(psl_latest) \
    X(psl_registrable_domain)

struct mail_late {
#define MAIL_LATE_MEMBER(name) __typeof__(&name) name##_f;
    MAIL_LATE_GMIME(MAIL_LATE_MEMBER) MAIL_LATE_PSL(MAIL_LATE_MEMBER)
#undef MAIL_LATE_MEMBER
};
extern struct mail_late mail_late;

/* Once, from any thread.  False: a library is not installed; @ret_why (256 bytes) says which. */
bool mail_late_load(char *ret_why);

/* GLib may wrap these in macros of its own. */
#undef g_object_unref
#undef g_free
#undef g_date_time_unref
#define g_date_time_new_from_unix_utc mail_late.g_date_time_new_from_unix_utc_f
#define g_date_time_to_unix mail_late.g_date_time_to_unix_f
#define g_date_time_unref mail_late.g_date_time_unref_f
#define g_free mail_late.g_free_f
#define g_mime_content_disposition_get_disposition \
    mail_late.g_mime_content_disposition_get_disposition_f
#define g_mime_content_type_get_media_subtype mail_late.g_mime_content_type_get_media_subtype_f
#define g_mime_content_type_get_media_type mail_late.g_mime_content_type_get_media_type_f
#define g_mime_content_type_get_parameter mail_late.g_mime_content_type_get_parameter_f
#define g_mime_content_type_is_type mail_late.g_mime_content_type_is_type_f
#define g_mime_data_wrapper_new_with_stream mail_late.g_mime_data_wrapper_new_with_stream_f
#define g_mime_data_wrapper_write_to_stream mail_late.g_mime_data_wrapper_write_to_stream_f
#define g_mime_format_options_free mail_late.g_mime_format_options_free_f
#define g_mime_format_options_new mail_late.g_mime_format_options_new_f
#define g_mime_format_options_set_newline_format \
    mail_late.g_mime_format_options_set_newline_format_f
#define g_mime_header_get_name mail_late.g_mime_header_get_name_f
#define g_mime_header_get_raw_value mail_late.g_mime_header_get_raw_value_f
#define g_mime_header_list_get_count mail_late.g_mime_header_list_get_count_f
#define g_mime_header_list_get_header_at mail_late.g_mime_header_list_get_header_at_f
#define g_mime_init mail_late.g_mime_init_f
#define g_mime_message_add_mailbox mail_late.g_mime_message_add_mailbox_f
#define g_mime_message_get_date mail_late.g_mime_message_get_date_f
#define g_mime_message_get_from mail_late.g_mime_message_get_from_f
#define g_mime_message_get_message_id mail_late.g_mime_message_get_message_id_f
#define g_mime_message_get_mime_part mail_late.g_mime_message_get_mime_part_f
#define g_mime_message_get_subject mail_late.g_mime_message_get_subject_f
#define g_mime_message_new mail_late.g_mime_message_new_f
#define g_mime_message_part_get_message mail_late.g_mime_message_part_get_message_f
#define g_mime_message_part_get_type mail_late.g_mime_message_part_get_type_f
#define g_mime_message_set_date mail_late.g_mime_message_set_date_f
#define g_mime_message_set_message_id mail_late.g_mime_message_set_message_id_f
#define g_mime_message_set_mime_part mail_late.g_mime_message_set_mime_part_f
#define g_mime_message_set_subject mail_late.g_mime_message_set_subject_f
#define g_mime_multipart_add mail_late.g_mime_multipart_add_f
#define g_mime_multipart_get_count mail_late.g_mime_multipart_get_count_f
#define g_mime_multipart_get_part mail_late.g_mime_multipart_get_part_f
#define g_mime_multipart_get_type mail_late.g_mime_multipart_get_type_f
#define g_mime_multipart_new_with_subtype mail_late.g_mime_multipart_new_with_subtype_f
#define g_mime_multipart_set_boundary mail_late.g_mime_multipart_set_boundary_f
#define g_mime_object_encode mail_late.g_mime_object_encode_f
#define g_mime_object_get_content_disposition mail_late.g_mime_object_get_content_disposition_f
#define g_mime_object_get_content_type mail_late.g_mime_object_get_content_type_f
#define g_mime_object_get_header mail_late.g_mime_object_get_header_f
#define g_mime_object_get_header_list mail_late.g_mime_object_get_header_list_f
#define g_mime_object_set_disposition mail_late.g_mime_object_set_disposition_f
#define g_mime_object_set_header mail_late.g_mime_object_set_header_f
#define g_mime_object_write_to_stream mail_late.g_mime_object_write_to_stream_f
#define g_mime_parser_construct_message mail_late.g_mime_parser_construct_message_f
#define g_mime_parser_new_with_stream mail_late.g_mime_parser_new_with_stream_f
#define g_mime_part_get_content mail_late.g_mime_part_get_content_f
#define g_mime_part_get_filename mail_late.g_mime_part_get_filename_f
#define g_mime_part_get_type mail_late.g_mime_part_get_type_f
#define g_mime_part_new_with_type mail_late.g_mime_part_new_with_type_f
#define g_mime_part_set_content mail_late.g_mime_part_set_content_f
#define g_mime_part_set_content_encoding mail_late.g_mime_part_set_content_encoding_f
#define g_mime_part_set_filename mail_late.g_mime_part_set_filename_f
#define g_mime_references_free mail_late.g_mime_references_free_f
#define g_mime_references_get_message_id mail_late.g_mime_references_get_message_id_f
#define g_mime_references_length mail_late.g_mime_references_length_f
#define g_mime_references_parse mail_late.g_mime_references_parse_f
#define g_mime_stream_mem_get_byte_array mail_late.g_mime_stream_mem_get_byte_array_f
#define g_mime_stream_mem_new mail_late.g_mime_stream_mem_new_f
#define g_mime_stream_mem_new_with_buffer mail_late.g_mime_stream_mem_new_with_buffer_f
#define g_mime_text_part_get_text mail_late.g_mime_text_part_get_text_f
#define g_mime_text_part_get_type mail_late.g_mime_text_part_get_type_f
#define g_mime_text_part_new_with_subtype mail_late.g_mime_text_part_new_with_subtype_f
#define g_mime_text_part_set_charset mail_late.g_mime_text_part_set_charset_f
#define g_mime_text_part_set_text mail_late.g_mime_text_part_set_text_f
#define g_mime_utils_header_decode_text mail_late.g_mime_utils_header_decode_text_f
#define g_object_unref mail_late.g_object_unref_f
#define g_type_check_instance_is_a mail_late.g_type_check_instance_is_a_f
#define internet_address_get_name mail_late.internet_address_get_name_f
#define internet_address_list_get_address mail_late.internet_address_list_get_address_f
#define internet_address_list_length mail_late.internet_address_list_length_f
#define internet_address_mailbox_get_addr mail_late.internet_address_mailbox_get_addr_f
#define internet_address_mailbox_get_type mail_late.internet_address_mailbox_get_type_f
#define psl_free mail_late.psl_free_f
#define psl_latest mail_late.psl_latest_f
#define psl_registrable_domain mail_late.psl_registrable_domain_f
