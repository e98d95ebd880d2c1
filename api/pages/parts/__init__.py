"""Parts that several pages share: forms, drawings, sentences, rendering."""
