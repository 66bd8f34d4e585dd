"""Generated O+ queries in this process, with instances that change all the time, against the law."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.property.check_local import any_reconfigurer, any_settings
from tests.property.check_o_plus import check_o_plus
from tests.property.o_plus_cases import o_plus_cases


@settings(max_examples=examples(30))
@given(data=st.data())
def test_the_output_is_the_laws_however_instances_change(data: st.DataObject) -> None:
    check_o_plus(data.draw(o_plus_cases()), data.draw(any_settings()), data.draw(any_reconfigurer()))
