-- +goose Up

ALTER TABLE builds ADD COLUMN clears jsonb;
COMMENT ON COLUMN builds.clears IS
    'The entries of secrets, as they were at the submit, that go once the deploy runs without them; null where there are none. Names and versions, no values.';

-- +goose Down
ALTER TABLE builds DROP COLUMN clears;
